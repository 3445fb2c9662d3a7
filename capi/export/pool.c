/* Large blocks, for training steps that allocate and free the same few sizes
 * over and over.
 *
 * Giving a freed block back to the system at once keeps a process small, but
 * the next block of that size is made of page faults and of pages that the
 * kernel clears. Keeping it is fast, but what is kept and does not fit adds up.
 * Here freed blocks are kept as long as everything in use and everything kept
 * together stay within what was in use at the busiest moment so far. So these
 * blocks never take more than they would at their busiest moment with each
 * given back at once, and after one training step the next one's come from
 * memory that is there.
 *
 * One range of addresses is reserved; extents of whole pages tile it. An extent
 * is in use, kept (free, its pages are there) or clean (free, no pages). Kept
 * extents beside each other are joined, and so are clean ones. The range asks
 * for huge pages: a fault then brings 2 MiB. */
#include "pool.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define CHUNK ((size_t)64 << 10) /* of nodes */
#define HUGE ((size_t)2 << 20)
#define SMALLEST_RANGE ((size_t)4 << 30)

enum state { IN_USE, KEPT, CLEAN };

typedef struct extent {
  uintptr_t at;
  size_t size;
  size_t asked; /* bytes that were asked for, of a block in use with room behind it; else 0 */
  enum state state;
  struct extent *below, *above; /* neighbours by address */
  struct extent *older, *newer; /* others of the state KEPT or CLEAN, in the order in which they came to be */
} extent;

typedef struct {
  extent *oldest, *newest;
} queue;

static struct {
  pthread_mutex_t lock;
  uintptr_t base, end; /* these and page are written once, before the first block is handed out */
  size_t page;         /* what the system gives and takes: 4 KiB, on some machines 16 or 64 */
  size_t threshold;
  int enabled;
  extent **starts; /* by page: the extent in use that starts there */
  extent *unused;  /* nodes, through above */
  queue queues[3]; /* that of IN_USE stays empty */
  size_t live, kept, peak, fresh;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- extents ------------------------------------------------------------ */

static extent *node(void) {
  if (!pool.unused) {
    extent *chunk = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (chunk == MAP_FAILED)
      return NULL;
    for (size_t i = 0; i < CHUNK / sizeof *chunk; i++) {
      chunk[i].above = pool.unused;
      pool.unused = &chunk[i];
    }
  }
  extent *e = pool.unused;
  pool.unused = e->above;
  return e;
}

static void unqueue(extent *e) {
  if (e->state == IN_USE)
    return;
  queue *q = &pool.queues[e->state];
  *(e->older ? &e->older->newer : &q->oldest) = e->newer;
  *(e->newer ? &e->newer->older : &q->newest) = e->older;
  if (e->state == KEPT)
    pool.kept -= e->size;
}

static void set_state(extent *e, enum state s) {
  e->state = s;
  if (s == IN_USE)
    return;
  queue *q = &pool.queues[s];
  e->older = q->newest;
  e->newer = NULL;
  *(q->newest ? &q->newest->newer : &q->oldest) = e;
  q->newest = e;
  if (s == KEPT)
    pool.kept += e->size;
}

/* Cuts e after size bytes. The rest gets the state of e, which must be free. */
static int cut(extent *e, size_t size) {
  if (e->size == size)
    return 1;
  extent *rest = node();
  if (!rest)
    return 0;
  enum state s = e->state;
  unqueue(e);
  *rest = (extent){.at = e->at + size, .size = e->size - size, .below = e, .above = e->above};
  if (rest->above)
    rest->above->below = rest;
  e->above = rest;
  e->size = size;
  set_state(e, s);
  set_state(rest, s);
  return 1;
}

/* Takes e's neighbour above into e. Both are out of their queues. */
static void swallow(extent *e) {
  extent *gone = e->above;
  e->size += gone->size;
  e->above = gone->above;
  if (e->above)
    e->above->below = e;
  gone->above = pool.unused;
  pool.unused = gone;
}

/* Puts e, which is out of its queue, into state s, joined with neighbours of that state. */
static void release(extent *e, enum state s) {
  if (e->above && e->above->state == s) {
    unqueue(e->above);
    swallow(e);
  }
  if (e->below && e->below->state == s) {
    e = e->below;
    unqueue(e);
    swallow(e);
  }
  set_state(e, s);
}

/* Gives the pages of at least some of e back: excess bytes, in whole huge pages where there are any. */
static void purge(extent *e, size_t excess) {
  uintptr_t from = e->at, to = e->at + e->size;
  if (excess < e->size) {
    uintptr_t at = (to - excess) & ~(HUGE - 1);
    if (at <= from)
      at = (to - excess) & ~(pool.page - 1);
    if (at > from && cut(e, at - from)) {
      e = e->above;
      from = at;
    }
  }
  madvise((void *)from, to - from, MADV_DONTNEED);
  unqueue(e);
  release(e, CLEAN);
}

/* ---- blocks ------------------------------------------------------------- */

/* The smallest extent of state s that holds size bytes. */
static extent *fit(enum state s, size_t size) {
  extent *best = NULL;
  for (extent *e = pool.queues[s].newest; e; e = e->older)
    if (e->size >= size && (!best || e->size < best->size))
      best = e;
  return best;
}

/* Two neighbours, one kept and one clean, that hold size bytes together, with as much kept as can be: the lower one. */
static extent *straddle(size_t size) {
  extent *best = NULL;
  size_t most = 0;
  for (extent *e = pool.queues[KEPT].newest; e; e = e->older) {
    if (e->size <= most)
      continue;
    if (e->above && e->above->state == CLEAN && e->size + e->above->size >= size)
      best = e, most = e->size;
    else if (e->below && e->below->state == CLEAN && e->size + e->below->size >= size)
      best = e->below, most = e->size;
  }
  return best;
}

/* An extent of size bytes that begins where e does, out of its queue: of e and, where that is smaller, of what is above
 * it. So much is free there. */
static extent *front(extent *e, size_t size) {
  for (extent *more = e; size; more = e->above) {
    if (more->size > size && !cut(more, size)) {
      if (more != e) {
        madvise((void *)e->at, e->size, MADV_DONTNEED);
        release(e, CLEAN);
      }
      return NULL;
    }
    if (more->state == CLEAN)
      pool.fresh += more->size;
    unqueue(more);
    size -= more->size;
    if (more != e)
      swallow(e);
  }
  return e;
}

/* An extent of size bytes with room bytes behind it that are free. */
static extent *take(size_t size, size_t room) {
  size_t all = size + room;
  extent *e = fit(KEPT, all);
  if (!e && (e = straddle(all)) && e->state == CLEAN) { /* ends where the kept one does */
    size_t spare = e->size + e->above->size - all;
    if (spare) {
      if (!cut(e, spare))
        return NULL;
      e = e->above;
    }
  }
  if (!e)
    e = fit(CLEAN, all);
  return e ? front(e, size) : NULL;
}

static size_t whole_pages(size_t size) { return (size + pool.page - 1) & ~(pool.page - 1); }

static void *hand_out(extent *e, size_t asked) {
  set_state(e, IN_USE);
  e->asked = asked;
  pool.starts[(e->at - pool.base) / pool.page] = e;
  pool.live += e->size;
  if (pool.live > pool.peak)
    pool.peak = pool.live;
  while (pool.live + pool.kept > pool.peak)
    purge(pool.queues[KEPT].oldest, pool.live + pool.kept - pool.peak);
  return (void *)e->at;
}

static __thread size_t room; /* of this thread's next block */

void pool_room(size_t size) {
  /* smaller blocks are not of the pool, and the room would be another's */
  room = pool.enabled && size >= pool.threshold && size < (pool.end - pool.base) / 2 ? whole_pages(size) : 0;
}

int pool_memalign(void **out, size_t alignment, size_t size) {
  if (!pool.enabled || size < pool.threshold || alignment > pool.page || size > pool.end - pool.base)
    return posix_memalign(out, alignment, size);
  size_t behind = room;
  room = 0;
  pthread_mutex_lock(&pool.lock);
  extent *e = take(whole_pages(size), behind);
  if (!e && behind)
    e = take(whole_pages(size), 0);
  if (e)
    *out = hand_out(e, behind ? size : 0);
  pthread_mutex_unlock(&pool.lock);
  return e ? 0 : posix_memalign(out, alignment, size);
}

void *pool_behind(const void *block, size_t asked, size_t size) {
  uintptr_t at = (uintptr_t)block;
  if (!pool.enabled || at < pool.base || at >= pool.end || at % pool.page || size > pool.end - pool.base)
    return NULL;
  void *out = NULL;
  pthread_mutex_lock(&pool.lock);
  extent *e = pool.starts[(at - pool.base) / pool.page];
  extent *first = e && e->asked == asked && size > e->size ? e->above : NULL;
  if (first) {
    size = whole_pages(size) - e->size;
    size_t found = 0;
    for (extent *f = first; f && f->state != IN_USE && found < size; f = f->above)
      found += f->size;
    if (found >= size && (first = front(first, size)))
      out = hand_out(first, 0);
  }
  pthread_mutex_unlock(&pool.lock);
  return out;
}

void pool_free(void *block) {
  uintptr_t at = (uintptr_t)block;
  if (at < pool.base || at >= pool.end) {
    free(block);
    return;
  }
  pthread_mutex_lock(&pool.lock);
  extent **slot = &pool.starts[(at - pool.base) / pool.page];
  extent *e = *slot;
  if (!e || e->at != at)
    abort(); /* freed twice, or not the start of a block: as free does */
  *slot = NULL;
  pool.live -= e->size;
  release(e, KEPT);
  pthread_mutex_unlock(&pool.lock);
}

/* ---- the pool ----------------------------------------------------------- */

static void *reserve(size_t size) {
  void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? NULL : at;
}

static void lock_pool(void) { pthread_mutex_lock(&pool.lock); }
static void unlock_pool(void) { pthread_mutex_unlock(&pool.lock); }

/* How much of the addresses the pool may have. Where they are limited, others need
 * them too: the engine, the stacks of threads, other allocators. */
static size_t share_of_addresses(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return SIZE_MAX;
  return limit.rlim_cur / 4;
}

/* Whether the system promises memory for every address that is reserved
 * (vm.overcommit_memory is 2), so that a range would take it from all processes. */
static int reserving_takes_memory(void) {
  char mode = '0';
  int file = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
  if (file >= 0) {
    if (read(file, &mode, 1) != 1)
      mode = '0';
    close(file);
  }
  return mode == '2';
}

static int open_locked(void) {
  if (pool.base)
    return 0;
  if (reserving_takes_memory())
    return ENOMEM;
  size_t size = SMALLEST_RANGE, most = share_of_addresses();
  pool.page = (size_t)sysconf(_SC_PAGESIZE);
  size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * pool.page;
  while (size < 16 * memory && size <= most / 2)
    size *= 2;
  void *at = NULL;
  while (size >= SMALLEST_RANGE && size <= most && !(at = reserve(size + HUGE)))
    size /= 2;
  if (!at)
    return ENOMEM;
  extent *all = node();
  pool.starts = reserve(size / pool.page * sizeof *pool.starts);
  if (!all || !pool.starts || pthread_atfork(lock_pool, unlock_pool, unlock_pool) != 0) {
    munmap(at, size + HUGE);
    return ENOMEM;
  }
  uintptr_t base = ((uintptr_t)at + HUGE - 1) & ~(HUGE - 1);
  madvise((void *)base, size, MADV_HUGEPAGE); /* it works without */
  *all = (extent){.at = base, .size = size};
  set_state(all, CLEAN);
  pool.end = base + size;
  pool.base = base;
  return 0;
}

int pool_open(size_t threshold) {
  pthread_mutex_lock(&pool.lock);
  int failed = open_locked();
  pool.threshold = threshold;
  pthread_mutex_unlock(&pool.lock);
  return failed;
}

void pool_enable(int on) { pool.enabled = on && pool.base; }

void pool_trim(void) {
  pthread_mutex_lock(&pool.lock);
  while (pool.queues[KEPT].oldest)
    purge(pool.queues[KEPT].oldest, pool.queues[KEPT].oldest->size);
  pool.peak = pool.live;
  pthread_mutex_unlock(&pool.lock);
}

pool_usage pool_stats(void) {
  pthread_mutex_lock(&pool.lock);
  pool_usage u = {(int64_t)pool.live, (int64_t)pool.kept, (int64_t)pool.peak, (int64_t)pool.fresh};
  pthread_mutex_unlock(&pool.lock);
  return u;
}
