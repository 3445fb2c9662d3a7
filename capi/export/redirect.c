/* torch allocates the memory of CPU tensors in one library, libc10, with
 * posix_memalign and free. A library reaches functions of others through a table
 * of their addresses, which the dynamic linker fills in; the entries for those
 * two are set to the pool's functions. Nothing else in the process changes. */
#define _GNU_SOURCE
#include "pool.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
#define IS_ADDRESS(type) ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT)
#elif defined(__aarch64__)
#define IS_ADDRESS(type) ((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT)
#else
#define IS_ADDRESS(type) 0
#endif

typedef struct {
  uintptr_t *slots[16];
  void *functions[16];
  int count;
  int allocates, frees;
  uintptr_t read_only, read_only_end; /* what the linker makes so after it has filled the table in */
} found_calls;

/* Notes where relocations of a table name the two functions. */
static void scan(const ElfW(Rela) * table, size_t bytes, const ElfW(Sym) * symbols, const char *names,
                 ElfW(Addr) bias, found_calls *found) {
  for (size_t i = 0; i < bytes / sizeof *table; i++) {
    if (!IS_ADDRESS(ELF64_R_TYPE(table[i].r_info)))
      continue;
    const char *name = names + symbols[ELF64_R_SYM(table[i].r_info)].st_name;
    int allocates = strcmp(name, "posix_memalign") == 0, frees = strcmp(name, "free") == 0;
    if ((!allocates && !frees) || found->count == 16)
      continue;
    found->slots[found->count] = (uintptr_t *)(bias + table[i].r_offset);
    found->functions[found->count++] = allocates ? (void *)pool_memalign : (void *)pool_free;
    found->allocates |= allocates;
    found->frees |= frees;
  }
}

static int visit(struct dl_phdr_info *info, size_t size, void *user) {
  (void)size;
  const char *file = strrchr(info->dlpi_name, '/');
  if (strncmp(file ? file + 1 : info->dlpi_name, "libc10.so", 9) != 0)
    return 0;
  const ElfW(Dyn) *d = NULL;
  found_calls *found = user;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
    if (segment->p_type == PT_DYNAMIC)
      d = (const ElfW(Dyn) *)(info->dlpi_addr + segment->p_vaddr);
    if (segment->p_type == PT_GNU_RELRO) {
      found->read_only = info->dlpi_addr + segment->p_vaddr;
      found->read_only_end = found->read_only + segment->p_memsz;
    }
  }
  const ElfW(Rela) *plt = NULL, *data = NULL;
  const ElfW(Sym) *symbols = NULL;
  const char *names = NULL;
  size_t plt_bytes = 0, data_bytes = 0;
  for (; d && d->d_tag != DT_NULL; d++) {
    void *at = (void *)d->d_un.d_ptr; /* glibc has added the bias */
    switch (d->d_tag) {
    case DT_JMPREL: plt = at; break;
    case DT_PLTRELSZ: plt_bytes = d->d_un.d_val; break;
    case DT_RELA: data = at; break;
    case DT_RELASZ: data_bytes = d->d_un.d_val; break;
    case DT_SYMTAB: symbols = at; break;
    case DT_STRTAB: names = at; break;
    default: break;
    }
  }
  if (symbols && names) {
    if (plt)
      scan(plt, plt_bytes, symbols, names, info->dlpi_addr, user);
    if (data)
      scan(data, data_bytes, symbols, names, info->dlpi_addr, user);
  }
  return 1;
}

/* Stores value in slot. Where the linker made its page read-only, it is so again afterwards. */
static int store(const found_calls *found, uintptr_t *slot, uintptr_t value) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  uintptr_t at = (uintptr_t)slot & ~(page - 1);
  /* the linker protects whole pages only, from the one that the segment begins in */
  int read_only = at >= (found->read_only & ~(page - 1)) && at + page <= found->read_only_end;
  if (mprotect((void *)at, page, PROT_READ | PROT_WRITE) != 0)
    return 0;
  __atomic_store_n(slot, value, __ATOMIC_RELEASE);
  return !read_only || mprotect((void *)at, page, PROT_READ) == 0;
}

int pool_redirect_torch(void) {
  found_calls found = {.count = 0};
  dl_iterate_phdr(visit, &found);
  if (!found.allocates || !found.frees)
    return 0;
  /* free first: from then on either kind of block is freed rightly */
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < found.count; i++)
      if ((found.functions[i] == (void *)pool_free) == (pass == 0) &&
          !store(&found, found.slots[i], (uintptr_t)found.functions[i]))
        return 0;
  return found.count;
}
