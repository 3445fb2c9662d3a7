#include "errors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int32_t stop(void *user, int64_t done, int64_t total) { return (void)user, (void)done, (void)total, 1; }

static int32_t count(char *json, const char *name) {
  char *at = strstr(json, name);
  return at ? atoi(at + strlen(name)) : 0;
}

void datasets(const char *npz, const char *folder) {
  char garbage[512], json[512], *text;
  sar_handle d, p, m;
  sprintf(garbage, "%s/garbage.npz", folder);
  FILE *f = fopen(garbage, "w");
  fputs("this is no graph", f);
  fclose(f);
  GIVES(SAR_ERR_FORMAT, sar_graph_directory_sum, "/nowhere");
  VALUE(sar_graph_directory_verify, "/nowhere", NULL);
  GIVES(SAR_ERR_IO, sar_dataset_open, "/nowhere/graph.npz", &d);
  GIVES(SAR_ERR_FORMAT, sar_dataset_open, garbage, &d);
  VALUE(sar_dataset_open, npz, NULL);
  WORKS(sar_dataset_open, npz, &d);
  VALUE(sar_dataset_info, d, NULL);
  WORKS(sar_dataset_info, d, &text);
  int64_t n = count(text, "\"num_nodes\":"), length, nodes, neighbours;
  sar_free_string(text);
  DLTensor a = tensor(0, 32, calloc(n, 4), n, -1), wide = tensor(0, 64, calloc(n + 1, 8), n + 1, -1), *x = FLOATS(2, 4);
  VALUE(sar_dataset_adjacency, d, NULL, NULL, NULL);
  VALUE(sar_dataset_adjacency, d, &wide, &a, &length);
  TYPE(sar_dataset_adjacency, d, &wide, x, &length);
  VALUE(sar_dataset_assign, d, "by luck", 2, 0, &a);
  VALUE(sar_dataset_assign, d, "random", 0, 0, &a);
  VALUE(sar_dataset_assign, d, "stored", 2, 0, &a);
  TYPE(sar_dataset_assign, d, "random", 2, 0, &wide);
  WORKS(sar_dataset_assign, d, "random", 2, 0, &a);
  VALUE(sar_dataset_quality, d, &a, 1, &text);
  VALUE(sar_dataset_quality, d, &a, 2, NULL);
  TYPE(sar_dataset_quality, d, &wide, 2, &text);
  VALUE(sar_dataset_weights, d, "beauty", &a);
  TYPE(sar_dataset_weights, d, "edges", &wide);
  VALUE(sar_dataset_fennel, d, 2, 1, 0.1, 0, 0, NULL, &a, NULL, NULL);
  TYPE(sar_dataset_fennel, d, 2, 1, 0.1, 0, 0, NULL, &wide, NULL, NULL);
  VALUE(sar_dataset_parhip, d, garbage, NULL, NULL, 0, &nodes, &neighbours);
  VALUE(sar_dataset_parhip, d, garbage, NULL, NULL, 0, NULL, &neighbours);
  TYPE(sar_dataset_parhip, d, garbage, &wide, NULL, 0, &nodes, &neighbours);
  GIVES(SAR_ERR_STOPPED, sar_dataset_undirect, d, folder, 1 << 20, 0, stop, NULL);
  GIVES(SAR_ERR_IO, sar_dataset_undirect, d, "/nowhere", 1 << 20, 0, NULL, NULL);
  WORKS(sar_dataset_undirect, d, folder, 1 << 20, 0, NULL, NULL);
  memset(a.data, 0xff, 4 * n); /* every node of group 0 */
  VALUE(sar_dataset_fennel, d, 3, 2, 0.1, 0, 0, NULL, &a, NULL, NULL);
  GIVES(SAR_ERR_STOPPED, sar_dataset_fennel, d, 2, 1, 0.1, 0, 0, NULL, &a, stop, NULL);
  GIVES(SAR_ERR_IO, sar_dataset_parhip, d, "/nowhere/file", NULL, NULL, 0, &nodes, &neighbours);
  memset(a.data, 0, 4 * n);
  VALUE(sar_dataset_write_parts, d, &a, 0, folder, "{\"name\": \"g\"}", NULL, NULL);
  VALUE(sar_dataset_write_parts, d, &a, 1, folder, "no JSON", NULL, NULL);
  VALUE(sar_dataset_write_parts, d, &a, 1, folder, "{\"name\": \"g\", \"format\": \"papyrus\"}", NULL, NULL);
  GIVES(SAR_ERR_BUDGET, sar_dataset_write_parts, d, &a, 1, folder, "{\"name\": \"g\", \"memory\": 1}", NULL, NULL);
  GIVES(SAR_ERR_STOPPED, sar_dataset_write_parts, d, &a, 1, folder, "{\"name\": \"g\"}", stop, NULL);
  TYPE(sar_dataset_write_parts, d, &wide, 1, folder, "{\"name\": \"g\"}", NULL, NULL);
  VALUE(sar_dataset_least_memory, d, 0, "sar", &length);
  VALUE(sar_dataset_least_memory, d, 1, "sar", NULL);
  WORKS(sar_dataset_write_parts, d, &a, 1, folder, "{\"name\": \"g\"}", NULL, NULL);

  sprintf(json, "%s/g.json", folder);
  VALUE(sar_partition_open, json, 1, 0, &p);
  VALUE(sar_partition_open, json, 0, 8, &p);
  VALUE(sar_partition_open, json, 0, 0, NULL);
  GIVES(SAR_ERR_IO, sar_partition_open, "/nowhere/g.json", 0, 0, &p);
  GIVES(SAR_ERR_FORMAT, sar_partition_open, garbage, 0, 0, &p);
  VALUE(sar_partition_verify, json, 0, 8, &text);
  VALUE(sar_partition_verify, json, 0, 0, NULL);
  WORKS(sar_partition_open, json, 0, 0, &p);
  VALUE(sar_dataset_add_self_loops, p);
  VALUE(sar_partition_info, p, NULL);
  sar_handle parts, map;
  WORKS(sar_dataset_open, json, &parts);
  VALUE(sar_dataset_add_self_loops, parts);
  WORKS(sar_dataset_close, parts);
  VALUE(sar_partition_read, p, 0, "_N/taste", x);
  TYPE(sar_partition_read, p, 0, "_N/labels", &a);
  uint64_t address;
  int64_t edges, at;
  VALUE(sar_partition_map, p, 0, "_N/taste", &address, &m);
  VALUE(sar_partition_map, p, 0, "_N/labels", NULL, &m);
  WORKS(sar_partition_map, p, 0, "_N/labels", &address, &map);
  DLTensor window = tensor(1, 8, calloc(1, 1 << 14), 8 + 8192, -1), elsewhere = window;
  elsewhere.device.device_type = 2;
  VALUE(sar_map_read, map, -1, 8, &window, &at);
  TYPE(sar_map_read, map, 0, 8, &elsewhere, &at);
  VALUE(sar_partition_count_edges, p, 1, &edges);
  VALUE(sar_partition_count_edges, p, 0, NULL);
  VALUE(sar_partition_edges, p, 1, NULL, NULL, NULL);
  TYPE(sar_partition_edges, p, 0, x, NULL, NULL);
  WORKS(sar_partition_close, p);
  WORKS(sar_map_close, map);
  WORKS(sar_dataset_close, d);
  closed_partition = p, closed_dataset = d;
  HANDLE(map, sar_map_read, 0, 8, &window, &at);
  HANDLE_ALONE(map, sar_map_close);
  HANDLE_ALONE(p, sar_partition_close);
  HANDLE(p, sar_partition_info, &text);
  HANDLE(p, sar_partition_read, 0, "_N/labels", &a);
  HANDLE(p, sar_partition_map, 0, "_N/labels", &address, &m);
  HANDLE(p, sar_partition_count_edges, 0, &edges);
  HANDLE(p, sar_partition_edges, 0, NULL, NULL, NULL);
  HANDLE_ALONE(d, sar_dataset_close);
  HANDLE_ALONE(d, sar_dataset_add_self_loops);
  HANDLE(d, sar_dataset_info, &text);
  HANDLE(d, sar_dataset_adjacency, NULL, NULL, &length);
  HANDLE(d, sar_dataset_assign, "random", 2, 0, &a);
  HANDLE(d, sar_dataset_quality, &a, 2, &text);
  HANDLE(d, sar_dataset_weights, "edges", &a);
  HANDLE(d, sar_dataset_undirect, folder, 1 << 20, 0, NULL, NULL);
  HANDLE(d, sar_dataset_fennel, 2, 1, 0.1, 0, 0, NULL, &a, NULL, NULL);
  HANDLE(d, sar_dataset_parhip, garbage, NULL, NULL, 0, &nodes, &neighbours);
  HANDLE(d, sar_dataset_write_parts, &a, 1, folder, "{\"name\": \"g\"}", NULL, NULL);
  HANDLE(d, sar_dataset_least_memory, 1, "sar", &length);
}
