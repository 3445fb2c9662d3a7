#include "errors.h"

void process(void) {
  VALUE(sar_set_num_threads, 0);
  VALUE(sar_memory_stats, NULL);
  VALUE(sar_set_allocator, 7);
  GIVES(SAR_ERR_INTERNAL, sar_set_allocator, SAR_ALLOCATOR_POOL);
  VALUE(sar_pool_stats, NULL);
  VALUE(sar_job_token, "job", NULL);
  char *text;
  VALUE(sar_job_token, "job", &text); /* others can read SAR_SECRET_FILE */
  VALUE(sar_transport_register, NULL);
  VALUE(sar_transport_register, &(sar_transport){.size = sizeof(sar_transport), .name = "No name"});
  VALUE(sar_transport_register, &(sar_transport){.size = sizeof(sar_transport), .name = "nothing"});
  VALUE(sar_transport_library, "tcp", "/nowhere/lib.so");
  VALUE(sar_transport_probe, "nothing", &text);
  VALUE(sar_transport_probe, "ucx", NULL);
}

void kernels(void) {
  DLTensor *ptr = INTS(0, 1, 2), *idx = SMALL(0, 1), *x = FLOATS(2, 4), *y = FLOATS(2, 4), *w = FLOATS(2, 2);
  sar_handle m;
  uint64_t sum;
  WORKS(sar_kernel_spmm, ptr, idx, w, x, y);
  VALUE(sar_kernel_spmm, ptr, idx, NULL, NULL, y);
  VALUE(sar_kernel_spmm, INTS(0, 2, 1), idx, NULL, x, y);
  VALUE(sar_kernel_spmm, ptr, SMALL(0, 2), NULL, x, y);
  TYPE(sar_kernel_spmm, ptr, idx, NULL, ptr, y);
  TYPE(sar_kernel_spmm, ptr, idx, NULL, x, DOUBLES(2, 4));
  VALUE(sar_kernel_sddmm, ptr, SMALL(0, 2), x, y, w);
  VALUE(sar_kernel_sddmm, ptr, idx, x, y, FLOATS(2, 3));
  TYPE(sar_kernel_sddmm, ptr, idx, x, DOUBLES(2, 4), w);
  VALUE(sar_matrix_create, ptr, SMALL(0, 2), 2, &m);
  VALUE(sar_matrix_create, ptr, idx, 1ll << 40, &m);
  VALUE(sar_matrix_create, ptr, idx, 2, NULL);
  TYPE(sar_matrix_create, idx, idx, 2, &m);
  WORKS(sar_matrix_create, ptr, idx, 2, &m);
  VALUE(sar_matrix_spmm, m, NULL, FLOATS(3, 4), y);
  TYPE(sar_matrix_spmm, m, NULL, x, DOUBLES(2, 4));
  WORKS(sar_matrix_free, m);
  HANDLE(m, sar_matrix_spmm, NULL, x, y);
  HANDLE_ALONE(m, sar_matrix_free);
  VALUE(sar_checksum, x, NULL);
  DLTensor elsewhere = *x;
  elsewhere.device.device_type = 2;
  TYPE(sar_checksum, &elsewhere, &sum);
  VALUE(sar_column_moments, x, DOUBLES(2, 3));
  TYPE(sar_column_moments, x, FLOATS(2, 4));
  VALUE(sar_normalize, x, FLOATS(2, 4), 0, NULL, y);
  VALUE(sar_normalize, x, NULL, 1, NULL, y);
  sar_dropout all = {.size = sizeof all, .share = 1.5};
  VALUE(sar_normalize, x, NULL, 0, &all, y);
  TYPE(sar_normalize, x, DOUBLES(3, 4), 0, NULL, y);
  VALUE(sar_normalize_sums, y, x, FLOATS(3, 4), 0, NULL, DOUBLES(3, 4));
  TYPE(sar_normalize_sums, y, ptr, FLOATS(3, 4), 0, NULL, DOUBLES(2, 4));
  VALUE(sar_normalize_grad, y, x, FLOATS(3, 4), 0, NULL, y);
  TYPE(sar_normalize_grad, DOUBLES(2, 4), x, FLOATS(5, 4), 0, NULL, y);
}

void sessions(void) {
  sar_session_config one = {.size = sizeof one, .world = 1}, two = {.size = sizeof two, .rank = 1, .world = 2,
      .master_addr = "127.0.0.1", .master_port = 9, .start_seconds = 0.2, .insecure = 1};
  sar_handle s;
  char *text;
  uint64_t number;
  int32_t comm;
  sar_session_config bad = one;
  VALUE(sar_session_open, NULL, &s);
  VALUE(sar_session_open, &one, NULL);
  bad.rank = 1;
  VALUE(sar_session_open, &bad, &s);
  bad = one, bad.liveness_seconds = -1;
  VALUE(sar_session_open, &bad, &s);
  bad = two, bad.transport = "pigeon";
  GIVES(SAR_ERR_RENDEZVOUS, sar_session_open, &bad, &s);
  bad = two, bad.job_token = "short";
  GIVES(SAR_ERR_RENDEZVOUS, sar_session_open, &bad, &s);
  bad = two, bad.window_bytes = 1;
  GIVES(SAR_ERR_BUDGET, sar_session_open, &bad, &s);
  GIVES(SAR_ERR_RENDEZVOUS, sar_session_open, &two, &s);
  WORKS(sar_session_open, &one, &s);
  VALUE(sar_session_set_place, s, 4096, 0, NULL, &number);
  VALUE(sar_session_set_place, s, 1, 0, NULL, NULL);
  VALUE(sar_session_set_window, s, -1);
  VALUE(sar_session_set_exchange, s, 3);
  VALUE(sar_session_memory, s, 0, NULL);
  VALUE(sar_session_stats, s, NULL);
  VALUE(sar_session_value, s, "{\"op\": \"get\", \"key\": \"k\"}", NULL);
  VALUE(sar_session_value, s, "{\"op\": \"ask\", \"key\": \"k\"}", &text);
  VALUE(sar_comm_create, s, "more", NULL);
  for (int i = 0; i < 8; i++) WORKS(sar_comm_create, s, "more", &comm);
  VALUE(sar_comm_create, s, "more", &comm);
  DLTensor *x = FLOATS(2, 4), *idx = INTS(0, 1);
  DLTensor complex = tensor(5, 64, (float[4]){0}, 2, -1), elsewhere = *x;
  elsewhere.device.device_type = 2;
  VALUE(sar_all_reduce, s, 99, x, SAR_SUM);
  VALUE(sar_all_reduce, s, 1, x, 9);
  TYPE(sar_all_reduce, s, 1, &complex, SAR_SUM);
  VALUE(sar_broadcast, s, 99, x, 0);
  VALUE(sar_broadcast, s, 1, x, 1);
  TYPE(sar_broadcast, s, 1, &elsewhere, 0);
  VALUE(sar_barrier, s, 99);
  VALUE(sar_all_to_all, s, 99, x, x, 1);
  VALUE(sar_all_to_all, s, 1, ((DLTensor[]){*x, *x}), ((DLTensor[]){*x, *x}), 2);
  VALUE(sar_all_to_all, s, 1, x, idx, 1);
  TYPE(sar_all_to_all, s, 1, &elsewhere, x, 1);
  VALUE(sar_exchange_pair, s, 99, 0, x, 0, x);
  VALUE(sar_exchange_pair, s, 1, 1, x, 0, x);
  VALUE(sar_exchange_pair, s, 1, 0, x, -1, x);
  TYPE(sar_exchange_pair, s, 1, 0, &elsewhere, 0, x);
  WORKS(sar_session_close, s);
  closed_session = s;
  HANDLE_ALONE(s, sar_session_close);
  HANDLE(s, sar_session_abort, "why");
  HANDLE(s, sar_session_value, "{\"op\": \"count\"}", &text);
  HANDLE(s, sar_session_set_place, 1, 0, NULL, &number);
  HANDLE(s, sar_session_name_layer, 1, "layer");
  HANDLE(s, sar_session_set_window, 0);
  HANDLE(s, sar_session_set_exchange, 0);
  HANDLE(s, sar_session_memory, 0, &text);
  HANDLE(s, sar_session_stats, &text);
  HANDLE(s, sar_comm_create, "more", &comm);
  HANDLE(s, sar_all_reduce, 0, x, SAR_SUM);
  HANDLE(s, sar_broadcast, 0, x, 0);
  HANDLE(s, sar_barrier, 0);
  HANDLE(s, sar_all_to_all, 0, x, x, 1);
  HANDLE(s, sar_exchange_pair, 0, 0, x, 0, x);
}
