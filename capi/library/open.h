// Opens a shared library at run time.
#ifndef SAR_LIBRARY_OPEN_H
#define SAR_LIBRARY_OPEN_H

#include <stddef.h>

struct symbol {
	const char *name;
	void **to;
};

struct setting {
	const char *variable, *value;
	int forced; // 0: an own value of the user's stays
};

struct library {
	const char *name;               // for people
	const char *variable;           // of the environment, with the one file to open
	const char *file;               // its name in the system
	const char *install;            // how to get it
	const struct setting *settings; // of the environment, made before the library is there
	const struct symbol *symbols;   // up to one without name
	// suits checks what was found: 0, or -1 with a text in why.
	int (*suits)(char *why, size_t bytes);
	char *further; // a file to try where the system has none, NULL for none
	int opened;
};

// library_open loads a library for the rest of the process, once: 0, or -1 with a text in why. Any thread.
int library_open(struct library *, char *why, size_t bytes);

// library_path is where the loaded library lies.
const char *library_path(const struct library *);

// library_is_at sets further. It counts until the library is open.
void library_is_at(struct library *, const char *file);

#endif
