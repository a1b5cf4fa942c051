"""The version of this reo; the wheel, the image and the chart have it from here."""

VERSION = "0.3.0"
