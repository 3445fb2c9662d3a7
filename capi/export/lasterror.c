/* The last error of each thread: one block that holds the parts and, behind
 * them, their strings. It is freed when the thread ends. */
#include "abi.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static const sar_error_info none = {sizeof(sar_error_info), SAR_OK, -1, "", "", "", "", -1, 0, 0};

static void make_key(void) { pthread_key_create(&key, free); }

static const char *append(char **end, const char *s) {
  size_t n = strlen(s) + 1;
  char *at = memcpy(*end, s, n);
  *end += n;
  return at;
}

void lasterror_set(const sar_error_info *in) {
  pthread_once(&once, make_key);
  void *old = pthread_getspecific(key);
  size_t bytes = sizeof *in + strlen(in->message) + strlen(in->host) + strlen(in->phase) + strlen(in->file) + 4;
  sar_error_info *out = malloc(bytes);
  pthread_setspecific(key, out);
  free(old);
  if (!out)
    return;
  *out = *in;
  char *end = (char *)(out + 1);
  out->message = append(&end, in->message);
  out->host = append(&end, in->host);
  out->phase = append(&end, in->phase);
  out->file = append(&end, in->file);
}

const sar_error_info *lasterror_get(void) {
  pthread_once(&once, make_key);
  const sar_error_info *info = pthread_getspecific(key);
  return info ? info : &none;
}
