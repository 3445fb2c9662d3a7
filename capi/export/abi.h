/* abi.h - what every file of this package sees of C.
 *
 * sar.h declares the functions that the Go files export, so the C compiler
 * refuses an export whose signature is not the specified one. sar.h is a link
 * to ../sar.h: the go command rebuilds a package when a header in its own
 * directory changes, and only then. */
#ifndef SAR_EXPORT_ABI_H
#define SAR_EXPORT_ABI_H

#include "sar.h"

/* cgo has no const. It keeps the names of typedefs, so these carry it. */
typedef const char sar_const_char;
typedef const DLTensor sar_const_tensor;
typedef const sar_session_config sar_const_session_config;
typedef const sar_program_call sar_const_program_call;
typedef const sar_dropout sar_const_dropout;
typedef const sar_sample_config sar_const_sample_config;
typedef const sar_stream sar_const_stream;
typedef const sar_transport sar_const_transport;

#define SAR_HIDDEN __attribute__((visibility("hidden")))

/* The last error of the calling thread (lasterror.c). Strings are copied. */
SAR_HIDDEN void lasterror_set(const sar_error_info *info);
SAR_HIDDEN const sar_error_info *lasterror_get(void); /* never NULL */

/* Calls progress, which Go cannot (progress may be NULL). */
static inline int32_t call_progress(sar_progress progress, void *user, int64_t done, int64_t total) {
  return progress ? progress(user, done, total) : 0;
}

/* Calls visit, which Go cannot. */
static inline int32_t call_visit(sar_stream_visit visit, void *user, const sar_stream_block *block) {
  return visit(user, block);
}

#endif
