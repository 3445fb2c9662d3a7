"""ctypes signatures of ``sar.h``: DLTensor, the error struct and every function.

Structs that configure something are declared where they are filled, so their pointers are plain addresses here.
``tests/unit/test_abi.py`` holds this table against the header.
"""

from __future__ import annotations

import ctypes as ct
from typing import Any

ABI_VERSION = 6


class DLTensor(ct.Structure):
    """DLPack's ``DLTensor``. ``_keep`` holds what the pointers point at."""

    class Device(ct.Structure):
        _fields_ = [("device_type", ct.c_int32), ("device_id", ct.c_int32)]

    class DataType(ct.Structure):
        _fields_ = [("code", ct.c_uint8), ("bits", ct.c_uint8), ("lanes", ct.c_uint16)]

    _fields_ = [
        ("data", ct.c_void_p),
        ("device", Device),
        ("ndim", ct.c_int32),
        ("dtype", DataType),
        ("shape", ct.POINTER(ct.c_int64)),
        ("strides", ct.POINTER(ct.c_int64)),
        ("byte_offset", ct.c_uint64),
    ]
    _keep: Any


class SizedStruct(ct.Structure):
    """A struct of ``sar.h`` that begins with its own size: made of the values of the fields after it, in order or by
    name."""

    def __init__(self, *values: Any, **named: Any) -> None:
        def sent(value: Any) -> Any:
            return value.encode() if isinstance(value, str) else value

        super().__init__(ct.sizeof(self), *map(sent, values), **{name: sent(v) for name, v in named.items()})


class ErrorInfo(ct.Structure):
    """``sar_error_info``."""

    _fields_ = [
        ("size", ct.c_size_t),
        ("status", ct.c_int32),
        ("rank", ct.c_int32),
        ("message", ct.c_char_p),
        ("host", ct.c_char_p),
        ("phase", ct.c_char_p),
        ("file", ct.c_char_p),
        ("offset", ct.c_int64),
        ("minimum", ct.c_int64),
        ("error_number", ct.c_int32),
    ]


Progress = ct.CFUNCTYPE(ct.c_int32, ct.c_void_p, ct.c_int64, ct.c_int64)

_status = ct.c_int32
_i32, _u32, _i64, _u64, _text, _address = ct.c_int32, ct.c_uint32, ct.c_int64, ct.c_uint64, ct.c_char_p, ct.c_void_p
_handle = ct.c_uint64
_tensor = ct.POINTER(DLTensor)
_to_i32, _to_u32, _to_i64, _to_u64 = ct.POINTER(_i32), ct.POINTER(_u32), ct.POINTER(_i64), ct.POINTER(_u64)
_to_handle = ct.POINTER(_handle)
# A string to free must come back as the address it has: c_char_p would turn it into bytes.
_to_string, _string = ct.POINTER(ct.c_void_p), ct.c_void_p
_to_address = ct.POINTER(ct.c_void_p)
_program_run = (_status, _handle, _handle, _address, _tensor, _i32, _tensor, _i32, _tensor)

PROTOTYPES: dict[str, tuple[Any, ...]] = {
    # name: (result, argument, ...)
    "sar_abi_version": (_u32,),
    "sar_version": (_text,),
    "sar_last_error": (_text,),
    "sar_last_error_info": (None, ct.POINTER(ErrorInfo)),
    "sar_free_string": (None, _string),
    "sar_set_num_threads": (_status, _i32),
    "sar_get_num_threads": (_i32,),
    "sar_simd": (_text,),
    "sar_memory_stats": (_status, _to_string),
    "sar_reset_peaks": (None,),
    "sar_set_allocator": (_status, _i32),
    "sar_pool_stats": (_status, _to_string),
    "sar_pool_trim": (None,),
    "sar_session_open": (_status, _address, _to_handle),
    "sar_job_token": (_status, _text, _to_string),
    "sar_transport_register": (_status, _address),
    "sar_transport_library": (_status, _text, _text),
    "sar_transport_probe": (_status, _text, _to_string),
    "sar_session_close": (_status, _handle),
    "sar_session_abort": (_status, _handle, _text),
    "sar_session_set_place": (_status, _handle, _u32, _u64, _text, _to_u64),
    "sar_session_name_layer": (_status, _handle, _u32, _text),
    "sar_session_set_window": (_status, _handle, _i64),
    "sar_session_set_exchange": (_status, _handle, _i32),
    "sar_default_window": (ct.c_int64, _i32, _i64),
    "sar_session_memory": (_status, _handle, ct.c_double, _to_string),
    "sar_session_stats": (_status, _handle, _to_string),
    "sar_session_value": (_status, _handle, _text, _to_string),
    "sar_comm_create": (_status, _handle, _text, _to_i32),
    "sar_all_reduce": (_status, _handle, _i32, _tensor, _i32),
    "sar_broadcast": (_status, _handle, _i32, _tensor, _i32),
    "sar_barrier": (_status, _handle, _i32),
    "sar_all_to_all": (_status, _handle, _i32, _tensor, _tensor, _i32),
    "sar_exchange_pair": (_status, _handle, _i32, _i32, _tensor, _i32, _tensor),
    "sar_partition_open": (_status, _text, _i32, _u32, _to_handle),
    "sar_partition_verify": (_status, _text, _i32, _u32, _to_string),
    "sar_partition_close": (_status, _handle),
    "sar_partition_info": (_status, _handle, _to_string),
    "sar_partition_read": (_status, _handle, _i32, _text, _tensor),
    "sar_partition_map": (_status, _handle, _i32, _text, _to_handle, _to_handle),
    "sar_map_read": (_status, _handle, _i64, _i64, _tensor, _to_i64),
    "sar_map_close": (_status, _handle),
    "sar_partition_count_edges": (_status, _handle, _i32, _to_i64),
    "sar_partition_edges": (_status, _handle, _i32, _tensor, _tensor, _tensor),
    "sar_graph_directory_sum": (_status, _text),
    "sar_graph_directory_verify": (_status, _text, _to_string),
    "sar_dataset_open": (_status, _text, _to_handle),
    "sar_dataset_close": (_status, _handle),
    "sar_dataset_add_self_loops": (_status, _handle),
    "sar_dataset_info": (_status, _handle, _to_string),
    "sar_dataset_adjacency": (_status, _handle, _tensor, _tensor, _to_i64),
    "sar_dataset_assign": (_status, _handle, _text, _i32, _u64, _tensor),
    "sar_dataset_quality": (_status, _handle, _tensor, _i32, _to_string),
    "sar_dataset_weights": (_status, _handle, _text, _tensor),
    "sar_dataset_undirect": (_status, _handle, _text, _i64, Progress, _address),
    "sar_dataset_fennel": (
        *(_status, _handle, _i32, _i32, ct.c_double, _u64),
        *(_tensor, _tensor, Progress, _address),
    ),
    "sar_dataset_parhip": (_status, _handle, _text, _tensor, _tensor, _i32, _to_i64, _to_i64),
    "sar_dataset_write_parts": (_status, _handle, _tensor, _i32, _text, _text, Progress, _address),
    "sar_dataset_least_memory": (_status, _handle, _i32, _text, _to_i64),
    "sar_graph_build": (_status, _handle, _handle, _u32, _to_handle),
    "sar_graph_from_edges": (_status, _handle, _tensor, _tensor, _tensor, _to_handle),
    "sar_graph_from_relations": (_status, _handle, _text, _tensor, _tensor, _tensor, _i32, _to_handle),
    "sar_graph_free": (_status, _handle),
    "sar_graph_num_relations": (_status, _handle, _to_i32),
    "sar_graph_relation_info": (_status, _handle, _i32, _address),
    "sar_graph_boundary": (_status, _handle, _i32, _to_string),
    "sar_graph_send_rows": (_status, _handle, _i32, _i32, _tensor),
    "sar_graph_degrees": (_status, _handle, _i32, _i32, _tensor),
    "sar_graph_block": (_status, _handle, _tensor, _tensor, _i32, _to_handle),
    "sar_graph_block_counts": (_status, _handle, _i32, _tensor),
    "sar_graph_block_rows": (_status, _handle, _i32, _i32, _tensor),
    "sar_graph_block_edges": (_status, _handle, _i32, _tensor),
    "sar_stream_run": (_status, _handle, _address, _to_u32),
    "sar_sampler_create": (_status, _handle, _address, _to_handle),
    "sar_sampler_column": (_status, _handle, _i32, _i32, _tensor),
    "sar_sampler_submit": (_status, _handle, _tensor, _i32, _u64, _to_handle),
    "sar_sampler_free": (_status, _handle),
    "sar_batch_wait": (_status, _handle),
    "sar_batch_array": (_status, _handle, _i32, _i32, _i32, _i32, _to_address, _to_i64, _to_i64),
    "sar_batch_free": (_status, _handle),
    "sar_graph_in_edges": (_status, _handle, _i32, _tensor, _tensor, _tensor, _tensor),
    "sar_graph_columns": (_status, _handle, _i32, _tensor, _tensor),
    "sar_fetch_forward": (_status, _handle, _i32, _tensor, _u32, _tensor, _tensor, _to_u32),
    "sar_fetch_backward": (_status, _handle, _i32, _tensor, _tensor, _tensor),
    "sar_program_create": (_status, _text, _to_handle),
    "sar_program_info": (_status, _handle, _to_string),
    "sar_program_free": (_status, _handle),
    "sar_program_forward": (*_program_run, _to_u32, _to_u32),
    "sar_program_backward": (*_program_run, _tensor, _tensor, _i32),
    "sar_kernel_spmm": (_status, _tensor, _tensor, _tensor, _tensor, _tensor),
    "sar_matrix_create": (_status, _tensor, _tensor, _i64, _to_handle),
    "sar_matrix_spmm": (_status, _handle, _tensor, _tensor, _tensor),
    "sar_matrix_free": (_status, _handle),
    "sar_kernel_sddmm": (_status, _tensor, _tensor, _tensor, _tensor, _tensor),
    "sar_column_moments": (_status, _tensor, _tensor),
    "sar_checksum": (_status, _tensor, _to_handle),
    "sar_normalize": (_status, _tensor, _tensor, _i32, _tensor),
    "sar_normalize_sums": (_status, _tensor, _tensor, _tensor, _i32, _tensor),
    "sar_normalize_grad": (_status, _tensor, _tensor, _tensor, _i32, _tensor),
}
