/* The pool on a system whose pages are as large as the first argument says: what it hands out and gives back are whole
 * pages, and what it hands out keeps what is written to it. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static size_t page_size;
static size_t given_back;
static int crooked;

static long sysconf_of(int name) {
  return name == _SC_PAGESIZE ? (long)page_size : sysconf(name);
}

static int madvise_of(void *at, size_t size, int advice) {
  crooked += (uintptr_t)at % page_size || size % page_size;
  if (advice == MADV_DONTNEED)
    given_back += size;
  return madvise(at, size, advice);
}

#define sysconf sysconf_of
#define madvise madvise_of
#include "pool.c"
#undef sysconf
#undef madvise

#define BLOCKS 24

static int fail(const char *what) {
  fprintf(stderr, "%s\n", what);
  return 1;
}

int main(int argc, char **argv) {
  if (argc != 2)
    return fail("give the size of a page");
  page_size = (size_t)atol(argv[1]);
  if (pool_open(256 << 10) != 0)
    return fail("no pool");
  pool_enable(1);
  unsigned *blocks[BLOCKS] = {0};
  size_t counts[BLOCKS] = {0};
  srand(1);
  for (unsigned step = 0; step < 20000; step++) {
    int k = rand() % BLOCKS;
    if (blocks[k]) {
      if (blocks[k][0] != (unsigned)k || blocks[k][counts[k] - 1] != (unsigned)k)
        return fail("a block lost what was written to it");
      pool_free(blocks[k]);
      blocks[k] = NULL;
      continue;
    }
    counts[k] = (64 << 10) + (size_t)(rand() % (256 << 10));
    size_t asked = counts[k] * sizeof(unsigned);
    if (k % 2)
      pool_room(asked);
    if (pool_memalign((void **)&blocks[k], 64, asked) != 0)
      return fail("no block");
    if ((uintptr_t)blocks[k] < pool.base || (uintptr_t)blocks[k] >= pool.end)
      return fail("a block is not of the pool");
    if ((uintptr_t)blocks[k] % page_size)
      return fail("a block does not begin with a page");
    unsigned *behind = pool_behind(blocks[k], asked, 2 * asked);
    if (!behind != !(k % 2) || pool_behind(blocks[k], asked - 1, 2 * asked))
      return fail("there is room behind a block that has none, or none behind one that has");
    if (behind) {
      if ((uintptr_t)behind != (uintptr_t)blocks[k] + whole_pages(asked))
        return fail("what is behind a block does not begin there");
      if (pool_behind(blocks[k], asked, 2 * asked))
        return fail("what is behind a block is given twice");
      memset(blocks[k], 1, 2 * asked);
      pool_free(behind);
    }
    blocks[k][0] = blocks[k][counts[k] - 1] = (unsigned)k;
    pool_usage now = pool_stats();
    if (now.live % (int64_t)page_size || now.kept % (int64_t)page_size)
      return fail("a block is not made of whole pages");
    if (now.live + now.kept > now.peak)
      return fail("more is kept than was in use");
  }
  for (int k = 0; k < BLOCKS; k++)
    if (blocks[k])
      pool_free(blocks[k]);
  pool_trim();
  pool_usage end = pool_stats();
  if (end.live || end.kept || !given_back)
    return fail("something was not given back");
  return crooked ? fail("the system was asked for parts of pages") : 0;
}
