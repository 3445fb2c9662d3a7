/* pool.h - an allocator for large blocks that keeps what is freed, but never
 * holds more than was in use at the busiest moment (pool.c), and how torch is
 * made to use it (redirect.c). */
#ifndef SAR_EXPORT_POOL_H
#define SAR_EXPORT_POOL_H

#include <stddef.h>
#include <stdint.h>

#define POOL_HIDDEN __attribute__((visibility("hidden")))

typedef struct {
  int64_t live;  /* in use */
  int64_t kept;  /* freed, but still in memory */
  int64_t peak;  /* most that was in use at once */
  int64_t fresh; /* handed out in all without being in memory already */
} pool_usage;

/* Reserves addresses for blocks of at least threshold bytes. Returns 0, or the
 * errno of what failed. May be called again, to change the threshold. */
POOL_HIDDEN int pool_open(size_t threshold);
/* Whether new blocks come from the pool. Those that are there stay valid. */
POOL_HIDDEN void pool_enable(int on);
/* Gives back what is kept; the peak starts anew from what is in use. */
POOL_HIDDEN void pool_trim(void);
POOL_HIDDEN pool_usage pool_stats(void);

/* As posix_memalign and free; blocks that the pool does not make go to the C
 * library and come from there. */
POOL_HIDDEN int pool_memalign(void **out, size_t alignment, size_t size);
POOL_HIDDEN void pool_free(void *block);

/* Puts this thread's next block where so many bytes behind it are free, if it can. */
POOL_HIDDEN void pool_room(size_t size);
/* A block right behind another, which is one of asked bytes that was put so, and has size bytes together with it; NULL
 * where those are not free. pool_free frees it. */
POOL_HIDDEN void *pool_behind(const void *block, size_t asked, size_t size);

/* Makes torch's allocator call the two above. Returns how many calls were
 * redirected; 0 where torch is not loaded or has none that could be. */
POOL_HIDDEN int pool_redirect_torch(void);

#endif
