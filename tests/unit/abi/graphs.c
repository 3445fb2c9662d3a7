#include "errors.h"

#include <stdio.h>

static int32_t break_off(void *user, const sar_stream_block *block) { return (void)user, (void)block, 0; }

sar_handle ring(sar_handle s) {
  sar_handle g = 0;
  WORKS(sar_graph_from_edges, s, INTS(0, 4), INTS(0, 1, 2, 3, 3, 0, 1, 2), INTS(0, 1, 2, 3, 0, 1, 2, 3), &g);
  return g;
}

void building(sar_handle s, const char *folder) {
  const char *types = "{\"node_types\": [\"a\"], \"edge_types\": [[\"a\", \"to\", \"a\"]]}";
  char json[512], *text;
  sar_handle p, g, two;
  sprintf(json, "%s/g.json", folder);
  WORKS(sar_partition_open, json, 0, 0, &p);
  VALUE(sar_graph_build, s, p, 8, &g);
  VALUE(sar_graph_build, s, p, 0, NULL);
  VALUE(sar_graph_build, 0, p, 0, &g);
  VALUE(sar_graph_build, s, some_program, 0, &g);
  GIVES(SAR_ERR_CLOSED, sar_graph_build, closed_session, p, 0, &g);
  GIVES(SAR_ERR_CLOSED, sar_graph_build, s, closed_partition, 0, &g);
  WORKS(sar_partition_close, p);
  VALUE(sar_graph_from_edges, s, INTS(4, 0), INTS(0), INTS(0), &g);
  VALUE(sar_graph_from_edges, s, INTS(0, 4), INTS(4), INTS(0), &g);
  VALUE(sar_graph_from_edges, s, INTS(0, 4), INTS(0), INTS(4), &g);
  VALUE(sar_graph_from_edges, s, INTS(0, 4), INTS(0), INTS(0), NULL);
  TYPE(sar_graph_from_edges, s, INTS(0, 4), SMALL(0), INTS(0), &g);
  DLTensor *counts = &(DLTensor[]){tensor(0, 64, (int64_t[]){4}, 1, 1)}[0];
  VALUE(sar_graph_from_relations, s, "no JSON", counts, INTS(0), INTS(0), 1, &g);
  VALUE(sar_graph_from_relations, s, types, counts, NULL, NULL, 0, &g);
  VALUE(sar_graph_from_relations, s, types, counts, INTS(4), INTS(0), 1, &g);
  VALUE(sar_graph_from_relations, s, types, counts, INTS(0), INTS(0), 1, NULL);
  TYPE(sar_graph_from_relations, s, types, FLOATS(1, 1), INTS(0), INTS(0), 1, &g);
  HANDLE(closed_session, sar_graph_from_edges, INTS(0, 4), INTS(0), INTS(0), &g);
  HANDLE(closed_session, sar_graph_from_relations, types, counts, INTS(0), INTS(0), 1, &g);
  g = ring(s);
  VALUE(sar_graph_num_relations, g, NULL);
  VALUE(sar_graph_relation_info, g, 0, NULL);
  VALUE(sar_graph_relation_info, g, 1, &(sar_relation_info){.size = sizeof(sar_relation_info)});
  VALUE(sar_graph_boundary, g, 0, NULL);
  VALUE(sar_graph_boundary, g, 1, &text);
  VALUE(sar_graph_send_rows, g, 0, 0, INTS(0));
  TYPE(sar_graph_send_rows, g, 0, 1, SMALL(0));
  VALUE(sar_graph_degrees, g, 1, 0, INTS(0, 0, 0, 0));
  TYPE(sar_graph_degrees, g, 0, 0, SMALL(0, 0, 0, 0));
  VALUE(sar_graph_block, g, INTS(4), INTS(0, 1), 0, &two);
  VALUE(sar_graph_block, g, INTS(1, 1), INTS(0, 2), 0, &two);
  VALUE(sar_graph_block, g, INTS(1), INTS(0, 1), 0, NULL);
  TYPE(sar_graph_block, g, SMALL(1), INTS(0, 1), 0, &two);
  VALUE(sar_graph_block_counts, g, 0, INTS(0));
  VALUE(sar_graph_block_rows, g, 0, 0, INTS(0));
  VALUE(sar_graph_block_edges, g, 0, INTS(0));
  WORKS(sar_graph_block, g, INTS(1), INTS(0, 1), 0, &two);
  VALUE(sar_graph_block, two, INTS(0), INTS(0, 1), 0, &p);
  TYPE(sar_graph_block_counts, two, 0, SMALL(0));
  VALUE(sar_graph_block_rows, two, 1, 0, INTS(0));
  TYPE(sar_graph_block_rows, two, 0, 0, SMALL(0));
  VALUE(sar_graph_block_edges, two, 1, INTS(0));
  TYPE(sar_graph_block_edges, two, 0, SMALL(0, 0));
  VALUE(sar_graph_in_edges, g, 0, INTS(4), INTS(0, 0), NULL, NULL);
  VALUE(sar_graph_in_edges, g, 1, INTS(0), INTS(0, 0), NULL, NULL);
  TYPE(sar_graph_in_edges, g, 0, SMALL(0), INTS(0, 0), NULL, NULL);
  VALUE(sar_graph_columns, g, 1, NULL, NULL);
  TYPE(sar_graph_columns, g, 0, SMALL(0, 0, 0, 0), NULL);
  WORKS(sar_graph_free, g);
  WORKS(sar_graph_free, two);
  closed_graph = g;
  HANDLE_ALONE(g, sar_graph_free);
  HANDLE(g, sar_graph_num_relations, &(int32_t){0});
  HANDLE(g, sar_graph_relation_info, 0, &(sar_relation_info){.size = sizeof(sar_relation_info)});
  HANDLE(g, sar_graph_boundary, 0, &text);
  HANDLE(g, sar_graph_send_rows, 0, 1, INTS(0));
  HANDLE(g, sar_graph_degrees, 0, 0, INTS(0, 0, 0, 0));
  HANDLE(g, sar_graph_block, INTS(1), INTS(0, 1), 0, &two);
  HANDLE(g, sar_graph_block_counts, 0, INTS(0));
  HANDLE(g, sar_graph_block_rows, 0, 0, INTS(0));
  HANDLE(g, sar_graph_block_edges, 0, INTS(0));
  HANDLE(g, sar_graph_in_edges, 0, INTS(0), INTS(0, 0), NULL, NULL);
  HANDLE(g, sar_graph_columns, 0, NULL, NULL);
}

void passing(sar_handle s) {
  DLTensor *u = FLOATS(4, 2), *out = FLOATS(4, 2);
  sar_handle g = ring(s);
  uint32_t agreed, saves;
  sar_stream visits = {.size = sizeof visits, .src = INTS(0, 0), .dst = INTS(0, 0)};
  VALUE(sar_stream_run, g, &visits, &agreed);
  visits.visit = break_off, visits.flags = 1 << 16;
  VALUE(sar_stream_run, g, &visits, &agreed);
  visits.flags = 0, visits.src = SMALL(0, 0);
  TYPE(sar_stream_run, g, &visits, &agreed);

  VALUE(sar_fetch_forward, g, 0, INTS(4), 0, u, FLOATS(1, 2), &agreed);
  VALUE(sar_fetch_forward, g, 0, INTS(0), 1 << 16, u, FLOATS(1, 2), &agreed);
  VALUE(sar_fetch_forward, g, 0, INTS(0), 0, u, FLOATS(1, 2), NULL);
  TYPE(sar_fetch_forward, g, 0, SMALL(0), 0, u, FLOATS(1, 2), &agreed);
  VALUE(sar_fetch_backward, g, 0, INTS(4), FLOATS(1, 2), NULL);
  TYPE(sar_fetch_backward, g, 0, INTS(0), INTS(0), NULL);

  sar_handle p;
  char *text;
  VALUE(sar_program_create, "no JSON", &p);
  VALUE(sar_program_create, "{}", NULL);
  WORKS(sar_program_create, "{\"operands\": [{\"side\": \"u\", \"shape\": [2]}], \"code\": "
      "[{\"op\": \"exp\", \"a\": 0}], \"result\": 1, \"reduce\": \"sum\"}", &p);
  VALUE(sar_program_info, p, NULL);
  sar_program_call run = {.size = sizeof run, .agreed = 1, .need_grad = 1}, seeded = run;
  seeded.num_seeds = 1, seeded.seeds = &(uint64_t){0};
  DLTensor *none = FLOATS(0, 2);
  VALUE(sar_program_forward, g, p, &run, NULL, 0, NULL, 0, out, &agreed, &saves);
  VALUE(sar_program_forward, g, p, &run, u, 1, u, 1, out, &agreed, &saves);
  VALUE(sar_program_forward, g, p, &seeded, u, 1, NULL, 0, out, &agreed, &saves);
  VALUE(sar_program_forward, g, p, &run, u, 1, NULL, 0, out, NULL, &saves);
  TYPE(sar_program_forward, g, p, &run, DOUBLES(4, 2), 1, NULL, 0, out, &agreed, &saves);
  VALUE(sar_program_backward, g, p, &run, none, 1, NULL, 0, none, out, FLOATS(4, 2), 1);
  VALUE(sar_program_backward, g, p, &run, u, 1, NULL, 0, none, out, NULL, 0);
  TYPE(sar_program_backward, g, p, &run, DOUBLES(4, 2), 1, NULL, 0, out, out, out, 1);
  WORKS(sar_program_free, p);
  VALUE(sar_program_info, 0, &text);
  VALUE(sar_program_info, s, &text);
  GIVES(SAR_ERR_CLOSED, sar_program_info, p, &text);
  VALUE(sar_program_free, 0);
  VALUE(sar_program_free, s);
  GIVES(SAR_ERR_CLOSED, sar_program_free, p);
  GIVES(SAR_ERR_CLOSED, sar_program_forward, g, p, &run, u, 1, NULL, 0, out, &agreed, &saves);
  VALUE(sar_program_forward, s, some_program, &run, u, 1, NULL, 0, out, &agreed, &saves);
  VALUE(sar_program_forward, 0, some_program, &run, u, 1, NULL, 0, out, &agreed, &saves);
  GIVES(SAR_ERR_CLOSED, sar_program_forward, closed_graph, some_program, &run, u, 1, NULL, 0, out, &agreed, &saves);
  VALUE(sar_program_backward, s, some_program, &run, u, 1, NULL, 0, none, out, out, 1);
  VALUE(sar_program_backward, 0, some_program, &run, u, 1, NULL, 0, none, out, out, 1);
  GIVES(SAR_ERR_CLOSED, sar_program_backward, closed_graph, some_program, &run, u, 1, NULL, 0, none, out, out, 1);
  HANDLE(closed_graph, sar_stream_run, &visits, &agreed);
  HANDLE(closed_graph, sar_fetch_forward, 0, INTS(0), 0, u, FLOATS(1, 2), &agreed);
  HANDLE(closed_graph, sar_fetch_backward, 0, INTS(0), FLOATS(1, 2), NULL);
  WORKS(sar_graph_free, g);
}

void sampling(sar_handle s) {
  sar_handle g = ring(s), sampler, b, block;
  int64_t two[] = {2, -1}, below[] = {2, -2}, bytes;
  DLTensor fanouts = tensor(0, 64, two, 2, 1), none = tensor(0, 64, two, 0, 1), bad = tensor(0, 64, below, 2, 1);
  sar_sample_config config = {.size = sizeof config, .fanouts = &none};
  void *data;
  VALUE(sar_sampler_create, g, &config, &sampler);
  config.fanouts = &bad;
  VALUE(sar_sampler_create, g, &config, &sampler);
  config.fanouts = FLOATS(2, 1);
  TYPE(sar_sampler_create, g, &config, &sampler);
  config.fanouts = &fanouts;
  VALUE(sar_sampler_create, g, &config, NULL);
  WORKS(sar_graph_block, g, INTS(1), INTS(0, 1), 0, &block);
  VALUE(sar_sampler_create, block, &config, &sampler);
  WORKS(sar_graph_free, block);
  WORKS(sar_sampler_create, g, &config, &sampler);
  DLTensor *x = FLOATS(4, 2), elsewhere = *x;
  elsewhere.device.device_type = 2;
  VALUE(sar_sampler_column, sampler, 4, 0, x);
  VALUE(sar_sampler_column, sampler, SAR_SAMPLE_INPUT, 1, x);
  TYPE(sar_sampler_column, sampler, SAR_SAMPLE_INPUT, 0, &elsewhere);
  TYPE(sar_sampler_column, sampler, SAR_SAMPLE_WEIGHT, 0, INTS(1));
  WORKS(sar_sampler_column, sampler, SAR_SAMPLE_INPUT, 0, x);
  VALUE(sar_sampler_submit, sampler, NULL, 0, 7, &b);
  VALUE(sar_sampler_submit, sampler, INTS(4), 1, 7, &b);
  VALUE(sar_sampler_submit, sampler, INTS(1, 1), 1, 7, &b);
  VALUE(sar_sampler_submit, sampler, INTS(1), 1, 7, NULL);
  TYPE(sar_sampler_submit, sampler, SMALL(1), 1, 7, &b);
  WORKS(sar_sampler_submit, sampler, INTS(1), 1, 7, &b);
  VALUE(sar_sampler_column, sampler, SAR_SAMPLE_INPUT, 0, x);
  VALUE(sar_batch_array, b, 2, SAR_BATCH_NODES, 0, 0, &data, &bytes, NULL);
  VALUE(sar_batch_array, b, 0, 7, 0, 0, &data, &bytes, NULL);
  VALUE(sar_batch_array, b, 0, SAR_BATCH_NODES, 1, 0, &data, &bytes, NULL);
  VALUE(sar_batch_array, b, 0, SAR_BATCH_INPUT, 0, 1, &data, &bytes, NULL);
  VALUE(sar_batch_array, b, 0, SAR_BATCH_NODES, 0, 0, &data, NULL, NULL);
  WORKS(sar_batch_array, b, 0, SAR_BATCH_NODES, 0, 0, &data, &bytes, NULL);
  WORKS(sar_sampler_free, sampler);
  WORKS(sar_batch_free, b);
  WORKS(sar_graph_free, g);
  HANDLE(closed_graph, sar_sampler_create, &config, &sampler);
  HANDLE(sampler, sar_sampler_column, SAR_SAMPLE_INPUT, 0, x);
  HANDLE(sampler, sar_sampler_submit, INTS(1), 1, 7, &b);
  HANDLE_ALONE(sampler, sar_sampler_free);
  HANDLE_ALONE(b, sar_batch_wait);
  HANDLE(b, sar_batch_array, 0, SAR_BATCH_NODES, 0, 0, &data, &bytes, NULL);
  HANDLE_ALONE(b, sar_batch_free);
}

void broken_off(sar_handle s) {
  sar_handle g = ring(s);
  uint32_t agreed;
  sar_stream visits = {.size = sizeof visits, .src = INTS(0, 0), .dst = INTS(0, 0), .visit = break_off};
  VALUE(sar_stream_run, g, &visits, &agreed);
  WORKS(sar_graph_free, g);
}
