"""Settings: read, checked as a whole, and frozen, before any client is made.

Sources, the later one wins: defaults, the settings files (`REO_SETTINGS_FILE` or `--settings`), the
environment, the command line (`common.settings.value_sources`). What a setting is, `schema`
declares.

All errors are reported at once, each under the name that the user gave (`common.settings.refusal`),
and none that only follows from another one.

Names are checked too, because a mistyped setting that is silently ignored is a wrong copy: every
unknown name in the file and every unknown `REO_…`, `KAFKA_CLUSTERS_…` or `KAFKA_CONFIG_…` variable
is an error. Variables that Kubernetes injects for a Service (`REO_PORT`,
`KAFKA_CLUSTERS_SERVICE_HOST` …) are not ours and pass.

A secret may be given by the name of a file that has it (`…_FILE`), never on the command line, and
no message repeats it.
"""

from common.settings.contradictions import ONE_TOPIC
from common.settings.loading import is_ours, load
from common.settings.settings import Settings

__all__ = ["ONE_TOPIC", "Settings", "is_ours", "load"]
