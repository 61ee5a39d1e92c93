import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from rlhf_studio.runs import values
from tests.runs.store_helpers import same

any_text = st.text(alphabet=st.characters(), max_size=20) | st.text(alphabet="\ud800\udc00\ud83d\ude00a\x00", max_size=6)
any_float = st.floats(allow_nan=True, allow_infinity=True)
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | any_float | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=12,
)


@given(any_text)
def test_text_comes_back(text: str):
    stored = values.encode_text(text)
    assert values.decode_text(stored) == text
    assert isinstance(stored, str) == all(not 0xD800 <= ord(character) <= 0xDFFF for character in text)


def test_numbers_that_are_not_finite_become_null_with_a_flag():
    assert values.encode_number(math.nan) == (None, "nan")
    assert values.encode_number(math.inf) == (None, "inf")
    assert values.encode_number(-math.inf) == (None, "-inf")
    assert values.encode_number(None) == (None, None)
    assert values.encode_number(1.5) == (1.5, None)
    assert values.encode_numbers({"a": 1.0, "b": math.nan, "c": None}) == ([1.0, None, None], '{"b": "nan"}')


@given(st.dictionaries(st.sampled_from("abc"), any_float | st.none()))
def test_rows_of_numbers_come_back(numbers: dict[str, float | None]):
    stored, flags = values.encode_numbers(numbers)
    assert same(values.decode_numbers(dict(zip(numbers, stored, strict=True)), flags), numbers)


@given(any_json)
@example({"\ud83d\ude00": math.nan})
@example(math.nan)
def test_json_comes_back(value: object):
    assert same(values.decode_json(*values.encode_json(value)), value)


def test_json_holds_no_nan_and_plain_numpy():
    text, flags = values.encode_json({"a": np.float32(math.nan), "b": np.int64(3), "c": np.array([1.0, math.inf]), "d": (1, 2)})
    assert text == '{"a": null, "b": 3, "c": [1.0, null], "d": [1, 2]}'
    assert flags == '[[["a"], "nan"], [["c", 1], "inf"]]'


@given(npst.arrays(np.float32, npst.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5)))
def test_float_arrays_keep_every_bit(array: np.ndarray):
    assert same(values.decode_array(*values.encode_array(array, "float32")), array)


@given(npst.arrays(np.int32, npst.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=5)))
def test_whole_arrays_come_back(array: np.ndarray):
    assert same(values.decode_array(*values.encode_array(array, "int32")), array)


def test_arrays_are_little_endian_and_cast_only_within_their_kind():
    assert values.encode_array([1, 2], "int32") == ("int32", "[2]", b"\x01\0\0\0\x02\0\0\0")
    assert values.encode_array(np.array([True, False]), "float32")[2] == np.array([1, 0], "<f4").tobytes()
    assert values.encode_array([], "int32") == ("int32", "[0]", b"")
    assert values.encode_array(np.asfortranarray([[1, 2], [3, 4]]), "int32")[2] == np.array([1, 2, 3, 4], "<i4").tobytes()
    with pytest.raises(TypeError):
        values.encode_array([1.5], "int32")
    for nobody in (("object", "[1]", b""), ("float32", "[3]", b"\0" * 8)):
        with pytest.raises(ValueError):
            values.decode_array(*nobody)
