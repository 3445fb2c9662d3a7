#include "errors.h"

#include <stdio.h>
#include <stdlib.h>

sar_handle some_program, closed_session, closed_partition, closed_dataset, closed_graph;

static int wrong;

sar_status check(int line, const char *function, sar_status want, sar_status got) {
  static const char *const names[] = {"OK", "VALUE", "TYPE", "FORMAT", "PEER_LOST", "REMOTE", "SCHEDULE",
      "BUDGET", "TIMEOUT", "CLOSED", "IO", "INTERNAL", "RENDEZVOUS", "STOPPED", "SHUT_DOWN"};
  if (got != want) {
    fprintf(stderr, "line %d: %s gives %s and not %s: %s\n", line, function, names[got], names[want],
        got ? sar_last_error() : "");
    wrong++;
  } else if (got) {
    printf("%s SAR_ERR_%s\n", function, names[got]);
  }
  return got;
}

DLTensor tensor(uint8_t code, uint8_t bits, void *data, int64_t n, int64_t w) {
  static int64_t shapes[4096][2];
  static int used;
  int64_t *shape = shapes[used++];
  shape[0] = n, shape[1] = w;
  return (DLTensor){.data = data, .device = {1, 0}, .ndim = w < 0 ? 1 : 2, .dtype = {code, bits, 1}, .shape = shape};
}

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: %s <an .npz graph> <an empty folder> <a free port>\n", argv[0]);
    return 2;
  }
  WORKS(sar_program_create, "{\"operands\": [{\"side\": \"u\", \"shape\": [2]}], \"code\": "
      "[{\"op\": \"exp\", \"a\": 0}], \"result\": 1, \"reduce\": \"sum\"}", &some_program);
  process();
  kernels();
  sessions();
  datasets(argv[1], argv[2]);
  sar_session_config alone = {.size = sizeof alone, .world = 1};
  sar_handle s;
  WORKS(sar_session_open, &alone, &s);
  building(s, argv[2]);
  passing(s);
  sampling(s);
  broken_off(s);
  WORKS(sar_session_close, s);
  two_workers(argv[2], atoi(argv[3]));
  return wrong != 0;
}
