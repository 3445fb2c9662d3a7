#define _GNU_SOURCE
#include "open.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// at tries a file. Of a file that is there and does not load the reason goes to why.
static void *at(const char *file, char *why, size_t bytes)
{
	if (!file || !*file)
		return NULL;
	void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		snprintf(why, bytes, "%s", dlerror());
	return handle;
}

// is_missing tells whether the system has no such file, in place of one that it cannot load.
static int is_missing(const char *reason, const char *file)
{
	size_t n = strlen(file);
	return !strncmp(reason, file, n) && reason[n] == ':' && strstr(reason, "No such file");
}

static void *find(const struct library *l, char *why, size_t bytes)
{
	char reason[256] = "";
	const char *asked = getenv(l->variable);
	void *handle = at(asked, reason, sizeof reason);
	if (asked && *asked) {
		if (!handle)
			snprintf(why, bytes, "%s, which %s names, cannot be loaded: %s", asked, l->variable, reason);
		return handle;
	}
	handle = at(l->file, reason, sizeof reason);
	if (!handle)
		handle = at(l->further, reason, sizeof reason);
	if (!handle && is_missing(reason, l->file))
		snprintf(why, bytes, "%s is not found (%s): %s, or set %s to the path of its %s",
			l->name, l->file, l->install, l->variable, l->file);
	else if (!handle)
		snprintf(why, bytes, "%s cannot be loaded (%s): %s, or set %s to the path of its %s",
			l->name, reason, l->install, l->variable, l->file);
	return handle;
}

static int load(const struct library *l, char *why, size_t bytes)
{
	for (const struct setting *s = l->settings; s->variable; s++)
		setenv(s->variable, s->value, s->forced);
	void *handle = find(l, why, bytes);
	if (!handle)
		return -1;
	for (const struct symbol *s = l->symbols; s->name; s++) {
		*s->to = dlsym(handle, s->name);
		if (!*s->to) {
			snprintf(why, bytes, "what was found as %s has no function %s: %s", l->name, s->name, l->install);
			return -1;
		}
	}
	return l->suits(why, bytes);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int library_open(struct library *l, char *why, size_t bytes)
{
	pthread_mutex_lock(&lock);
	int bad = l->opened ? 0 : load(l, why, bytes);
	l->opened = !bad;
	pthread_mutex_unlock(&lock);
	return bad;
}

const char *library_path(const struct library *l)
{
	Dl_info about;
	return dladdr(*l->symbols->to, &about) && about.dli_fname ? about.dli_fname : l->file;
}

void library_is_at(struct library *l, const char *file)
{
	pthread_mutex_lock(&lock);
	free(l->further);
	l->further = strdup(file);
	pthread_mutex_unlock(&lock);
}
