"""The instructions of Python 3.11 to 3.13, by what they take of their operands; those that take
something else have a method each in watch.py, and what is in neither is not watched.
"""

from __future__ import annotations

__all__ = ["ELEMENTS", "KIND", "QUIET", "QUIET_INTRINSICS", "TRUTH", "WHOLE"]

# They only move values, or leave the function.
QUIET = frozenset({
    "BUILD_CONST_KEY_MAP", "BUILD_LIST", "BUILD_MAP", "BUILD_SET", "BUILD_SLICE",
    "BUILD_STRING", "BUILD_TUPLE", "CACHE", "CHECK_EXC_MATCH", "CLEANUP_THROW", "COPY",
    "COPY_FREE_VARS", "DELETE_FAST", "END_FOR", "END_SEND", "EXTENDED_ARG", "FOR_ITER",
    "INSTRUMENTED_RESUME", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_FORWARD",
    "LIST_APPEND", "LIST_TO_TUPLE", "LOAD_ASSERTION_ERROR", "LOAD_BUILD_CLASS", "LOAD_CONST",
    "LOAD_FAST", "LOAD_FAST_AND_CLEAR", "LOAD_FAST_CHECK", "LOAD_FAST_LOAD_FAST", "LOAD_LOCALS",
    "MAKE_CELL", "MAKE_FUNCTION", "MAP_ADD", "NOP", "POP_EXCEPT", "POP_TOP", "PRECALL",
    "PUSH_EXC_INFO", "PUSH_NULL", "RAISE_VARARGS", "RERAISE", "RESUME", "RETURN_CONST",
    "RETURN_GENERATOR", "RETURN_VALUE", "SEND", "SETUP_ANNOTATIONS", "SET_ADD",
    "SET_FUNCTION_ATTRIBUTE", "STORE_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST",
    "SWAP", "TO_BOOL_BOOL", "WITH_EXCEPT_START", "YIELD_VALUE",
})  # fmt: skip
# The truth of the topmost value.
TRUTH = frozenset({
    "JUMP_IF_FALSE_OR_POP", "JUMP_IF_TRUE_OR_POP", "POP_JUMP_BACKWARD_IF_FALSE",
    "POP_JUMP_BACKWARD_IF_TRUE", "POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_FORWARD_IF_TRUE",
    "POP_JUMP_IF_FALSE", "POP_JUMP_IF_TRUE", "TO_BOOL", "UNARY_NOT",
})  # fmt: skip
# All of their operands; the number of values, without the format that FORMAT_VALUE may have.
WHOLE = {
    "BINARY_OP": 2, "UNARY_INVERT": 1, "UNARY_NEGATIVE": 1, "UNARY_POSITIVE": 1, "FORMAT_VALUE": 1,
    "FORMAT_SIMPLE": 1, "FORMAT_WITH_SPEC": 2, "CONVERT_VALUE": 1, "DICT_UPDATE": 1,
    "DICT_MERGE": 1,
}  # fmt: skip
# These read only results of instructions before them.
QUIET_INTRINSICS = ("INTRINSIC_LIST_TO_TUPLE", "INTRINSIC_STOPITERATION_ERROR")
# The class of the topmost value.
KIND = frozenset({
    "MATCH_MAPPING", "MATCH_SEQUENCE", "POP_JUMP_BACKWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE",
    "POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_FORWARD_IF_NOT_NONE", "POP_JUMP_IF_NONE",
    "POP_JUMP_IF_NOT_NONE",
})  # fmt: skip
# The elements of the topmost value.
ELEMENTS = frozenset({
    "GET_ITER", "GET_YIELD_FROM_ITER", "LIST_EXTEND", "SET_UPDATE", "UNPACK_EX", "UNPACK_SEQUENCE",
})  # fmt: skip
