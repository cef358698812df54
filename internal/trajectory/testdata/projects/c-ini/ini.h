#ifndef INI_H
#define INI_H

#include <stdio.h>

/* One key of a section, and the comment lines above it. */
struct ini_entry {
	char *key;
	char *value;
	char *comment;
	int line_number;
	struct ini_entry *next;
};

struct ini_section {
	char *name; /* "" is what stands before the first section */
	char *comment;
	struct ini_entry *first_entry;
	struct ini_entry *last_entry;
	struct ini_section *next;
};

struct ini_file {
	struct ini_section *first_section;
	struct ini_section *last_section;
};

/* What was wrong with a file, and in which line, from 1. */
struct ini_error {
	int line_number;
	char message[128];
};

void ini_init(struct ini_file *file);
void ini_release(struct ini_file *file);

/* ini_load reads all of a stream. On an error it returns -1, fills in error and
   leaves file as it was before. */
int ini_load(struct ini_file *file, FILE *stream, struct ini_error *error);
int ini_load_string(struct ini_file *file, const char *text, struct ini_error *error);

/* ini_save writes all of it so that ini_load reads the same. */
int ini_save(const struct ini_file *file, FILE *stream);

/* ini_get returns a value that belongs to file, or NULL. */
const char *ini_get(const struct ini_file *file, const char *section, const char *key);

/* ini_get_int returns fallback when there is no such key or it is no number. */
long ini_get_int(const struct ini_file *file, const char *section, const char *key, long fallback);
int ini_get_bool(const struct ini_file *file, const char *section, const char *key, int fallback);

/* ini_set makes the section and the key where they are missing. */
int ini_set(struct ini_file *file, const char *section, const char *key, const char *value);

/* ini_remove returns 1 when there was such a key. */
int ini_remove(struct ini_file *file, const char *section, const char *key);

/* ini_each calls visit for every key in order, until it returns non-zero. */
int ini_each(const struct ini_file *file,
	     int (*visit)(void *context, const struct ini_section *section, const struct ini_entry *entry),
	     void *context);

#endif
