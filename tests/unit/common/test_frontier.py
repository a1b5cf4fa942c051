"""The frontier's metadata string: round trip, size, and that a damaged one is refused with
ValueError and nothing else.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.frontier import BYTES_MAX, KEPT, Frontier, LastRecord, Move, decode
from tests.harness.properties import property_test

NUMBERS, OFFSETS = st.integers(-1, 2**63 - 1), st.integers(0, 2**63 - 1)
LAST_RECORDS = st.none() | st.builds(LastRecord, OFFSETS, st.text(max_size=16), st.booleans())
FRONTIERS = st.builds(
    Frontier,
    NUMBERS,
    NUMBERS,
    st.text(max_size=40),
    NUMBERS,
    st.text(max_size=40),
    NUMBERS,
    NUMBERS,
    st.none() | NUMBERS,
    LAST_RECORDS,
    st.none() | st.text(max_size=17),
    st.booleans(),
    st.none() | st.builds(Move, st.integers(0, 2**47), st.text(max_size=50), OFFSETS),
)
GOOD = Frontier(
    17, 1_795_000_000_000, "0123456789abcdef", 4, "kVd3Zx0ASoO3n9X1mOQ8ew", 21, 3, gap=30
)


def change_metadata(**fields: Any) -> str:
    """The good metadata with some fields changed; a field set to `...` is left out."""
    return orjson.dumps(
        {
            name: value
            for name, value in (orjson.loads(GOOD.encode()) | fields).items()
            if value is not ...
        }
    ).decode()


@given(FRONTIERS)
@property_test(examples=400)
def test_a_frontier_comes_back_as_it_was(frontier: Frontier) -> None:
    """Encode, decode: the same, gap or not, for every number that the fields allow."""
    assert decode(frontier.encode()) == frontier


def test_it_is_far_below_the_brokers_limit() -> None:
    """The longest numbers and identities need a ninth of offset.metadata.max.bytes."""
    most = 2**63 - 1
    longest = Frontier(
        most,
        most,
        "f" * 16,
        most,
        "k" * 22,
        most,
        most,
        most,
        LastRecord(most, "f" * 16),
        "f" * 16 + KEPT,
        is_known_written=True,
    )
    assert len(longest.encode().encode()) < BYTES_MAX / 12


OF_VERSION_1 = {
    "fresh": (
        (
            '{"v":1,"f":-1,"e":0,"l":null,"h":null,"i":"0123456789abcdef","c":4,'
            '"t":"kVd3Zx0ASoO3n9X1mOQ8ew","d":-1,"n":0,"r":null,"w":null,"p":null,"m":null,"k":null}'
        ),
        Frontier(-1, 0, "0123456789abcdef", 4, "kVd3Zx0ASoO3n9X1mOQ8ew", -1, 0),
    ),
    "copied": (
        (
            '{"v":1,"f":41,"e":1882255441297409381,"l":[41,1790000000123,7],"h":null,'
            '"i":"9f86d081884c7d65","c":4,"t":"q7aN1Y0hQ2aD9v1m4bC3xA","d":39,"n":2,'
            '"r":[40,"5f1d7a84db00d2fc",true],"w":"5f1d7a84db00d2fc+","p":3,'
            '"m":"Zr2c0u4uT3W1pF5y8n7bQg","k":true}'
        ),
        Frontier(
            41,
            1_882_255_441_297_409_381,
            "9f86d081884c7d65",
            4,
            "q7aN1Y0hQ2aD9v1m4bC3xA",
            39,
            2,
            None,
            LastRecord(40, "5f1d7a84db00d2fc", left_out=True),
            "5f1d7a84db00d2fc+",
            is_known_written=True,
        ),
    ),
    "not one to one, with an open hole": (
        (
            '{"v":1,"f":41,"e":1882255441297409381,"l":[41,7,0],"h":[43,57],"i":"9f86d081884c7d65",'
            '"c":4,"t":"q7aN1Y0hQ2aD9v1m4bC3xA","d":-1,"n":-1,"r":null,"w":null,"p":null,"m":null,'
            '"k":null}'
        ),
        Frontier(
            41, 1_882_255_441_297_409_381, "9f86d081884c7d65", 4, "q7aN1Y0hQ2aD9v1m4bC3xA", -1, -1
        ),
    ),
}
"""As the last commit before version 2 has encoded them."""


@pytest.mark.parametrize("name", OF_VERSION_1)
def test_a_frontier_of_version_1_is_read(name: str) -> None:
    """All that still counts: offset, epoch, identities, and the position in the output. The next
    commit is of version 2.
    """
    metadata, frontier = OF_VERSION_1[name]
    assert decode(metadata) == frontier
    assert orjson.loads(frontier.encode())["v"] == 2
    assert decode(frontier.encode()) == frontier


@pytest.mark.parametrize("metadata", [None, ""])
def test_a_commit_without_metadata_is_refused(metadata: str | None) -> None:
    """Another application's plain commit: said so."""
    with pytest.raises(ValueError, match="no metadata"):
        decode(metadata)


def test_4095_bytes_are_the_limit() -> None:
    """What a broker would not have stored is refused before it is parsed; up to the limit it is
    read.
    """
    identity = "x" * (BYTES_MAX - len(change_metadata(i="")))
    assert len(change_metadata(i=identity)) == BYTES_MAX
    assert decode(change_metadata(i=identity)).source_identity == identity
    with pytest.raises(ValueError, match="longer than 4095"):
        decode(change_metadata(i=identity + "x"))


@pytest.mark.parametrize("version", [..., "1", "2", None, True, 2.0, [2]])
def test_what_has_no_version_is_refused(version: object) -> None:
    """A number is expected, also not `true`, which Python would take for 1."""
    with pytest.raises(ValueError, match="no version of the frontier"):
        decode(change_metadata(v=version))


@pytest.mark.parametrize("version", [0, 3, -1, 2**64 - 1])
def test_another_version_is_refused(version: int) -> None:
    """A later version's frontier is not guessed at."""
    with pytest.raises(ValueError, match=f"version {version} of the frontier.*reads 1 and 2"):
        decode(change_metadata(v=version))


@pytest.mark.parametrize("name", ["f", "e", "c", "d", "n"])
@pytest.mark.parametrize("value", [..., None, -2, 2**63, 1.0, True, "1", [1]])
def test_a_wrong_number_is_refused(name: str, value: object) -> None:
    """Missing, out of range, or of another kind, also `true`, which Python would take for 1."""
    with pytest.raises(ValueError, match="number"):
        decode(change_metadata(**{name: value}))


@pytest.mark.parametrize("gap", [-2, 2**63, 1.0, True, "1", [1], [1, 2]])
def test_a_wrong_gap_is_refused(gap: object) -> None:
    """A number or null."""
    with pytest.raises(ValueError, match="number"):
        decode(change_metadata(g=gap))


@pytest.mark.parametrize(
    "last",
    [
        [],
        [1],
        [1, "a"],
        ["1", "a", True],
        [1, 2, True],
        [-1, "a", True],
        [2**63, "a", True],
        [True, "a", True],
        [1, "a", 1],
        {"o": 1},
        7,
        "r",
        False,
    ],
)
def test_a_wrong_last_record_is_refused(last: object) -> None:
    """An offset, a checksum and true or false, or null: nothing else."""
    with pytest.raises(ValueError, match="last record"):
        decode(change_metadata(r=last))


@pytest.mark.parametrize("value", [False, 1, "true"])
def test_a_wrong_flag_is_refused(value: object) -> None:
    """Whether the known record is one of this copy is true, or not said."""
    with pytest.raises(ValueError, match="kind"):
        decode(change_metadata(k=value))


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in "it" for value in (..., None, 7, ["x"])]
    + [("w", value) for value in (7, ["x"], True)],
)
def test_a_wrong_text_is_refused(name: str, value: object) -> None:
    """Identity, topic ids and checksum are compared as texts; `w` may be missing."""
    with pytest.raises(ValueError, match="kind"):
        decode(change_metadata(**{name: value}))


@given(
    st.text(max_size=30)
    | st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**64 - 1)
        | st.floats(allow_nan=False)
        | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from("vfegictdnrwk"), inner, max_size=12)
        ),
        max_leaves=15,
    ).map(lambda tree: orjson.dumps({"v": 2, **tree} if isinstance(tree, dict) else tree).decode())
)
@property_test(examples=800)
def test_random_metadata_is_a_frontier_or_a_value_error(metadata: str) -> None:
    """Whatever another application committed: never an exception of another kind."""
    try:
        assert isinstance(decode(metadata), Frontier)
    except ValueError:
        return


@given(st.text(min_size=1, max_size=3), st.integers(0, 200))
@property_test(examples=500)
def test_damaged_metadata_is_a_frontier_or_a_value_error(noise: str, position: int) -> None:
    """Characters overwritten in a good one, also ones that UTF-8 does not have."""
    good = GOOD.encode()
    for damaged in (
        good[:position] + noise + good[position + len(noise) :],
        good[:position],
        good[:position] + "\ud800",
    ):
        try:
            decode(damaged)
        except ValueError:
            continue
