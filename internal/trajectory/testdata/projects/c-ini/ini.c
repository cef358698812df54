#include "ini.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "strbuf.h"

static char *duplicate_string(const char *text)
{
	size_t size = strlen(text) + 1;
	char *copy = malloc(size);

	if (copy != NULL)
		memcpy(copy, text, size);
	return copy;
}

static int same_name(const char *a, const char *b)
{
	return strcmp(a, b) == 0;
}

void ini_init(struct ini_file *file)
{
	file->first_section = NULL;
	file->last_section = NULL;
}

static void release_entry(struct ini_entry *entry)
{
	free(entry->key);
	free(entry->value);
	free(entry->comment);
	free(entry);
}

static void release_section(struct ini_section *section)
{
	struct ini_entry *entry = section->first_entry;

	while (entry != NULL) {
		struct ini_entry *next = entry->next;

		release_entry(entry);
		entry = next;
	}
	free(section->name);
	free(section->comment);
	free(section);
}

void ini_release(struct ini_file *file)
{
	struct ini_section *section = file->first_section;

	while (section != NULL) {
		struct ini_section *next = section->next;

		release_section(section);
		section = next;
	}
	ini_init(file);
}

static struct ini_section *find_section(const struct ini_file *file, const char *name)
{
	struct ini_section *section;

	for (section = file->first_section; section != NULL; section = section->next)
		if (same_name(section->name, name))
			return section;
	return NULL;
}

static struct ini_entry *find_entry(const struct ini_section *section, const char *key)
{
	struct ini_entry *entry;

	for (entry = section->first_entry; entry != NULL; entry = entry->next)
		if (same_name(entry->key, key))
			return entry;
	return NULL;
}

static struct ini_section *append_section(struct ini_file *file, const char *name)
{
	struct ini_section *section = calloc(1, sizeof *section);

	if (section == NULL)
		return NULL;
	section->name = duplicate_string(name);
	if (section->name == NULL) {
		free(section);
		return NULL;
	}
	if (file->last_section == NULL)
		file->first_section = section;
	else
		file->last_section->next = section;
	file->last_section = section;
	return section;
}

static struct ini_entry *append_entry(struct ini_section *section, const char *key, const char *value)
{
	struct ini_entry *entry = calloc(1, sizeof *entry);

	if (entry == NULL)
		return NULL;
	entry->key = duplicate_string(key);
	entry->value = duplicate_string(value);
	if (entry->key == NULL || entry->value == NULL) {
		release_entry(entry);
		return NULL;
	}
	if (section->last_entry == NULL)
		section->first_entry = entry;
	else
		section->last_entry->next = entry;
	section->last_entry = entry;
	return entry;
}

const char *ini_get(const struct ini_file *file, const char *section_name, const char *key)
{
	const struct ini_section *section = find_section(file, section_name);
	const struct ini_entry *entry = section == NULL ? NULL : find_entry(section, key);

	return entry == NULL ? NULL : entry->value;
}

long ini_get_int(const struct ini_file *file, const char *section, const char *key, long fallback)
{
	const char *value = ini_get(file, section, key);
	char *end;
	long number;

	if (value == NULL || *value == '\0')
		return fallback;
	errno = 0;
	number = strtol(value, &end, 0);
	return errno != 0 || *end != '\0' ? fallback : number;
}

int ini_get_bool(const struct ini_file *file, const char *section, const char *key, int fallback)
{
	static const char *const truths[] = {"1", "yes", "true", "on"};
	static const char *const falsehoods[] = {"0", "no", "false", "off"};
	const char *value = ini_get(file, section, key);
	size_t i;

	if (value == NULL)
		return fallback;
	for (i = 0; i < sizeof truths / sizeof *truths; i++) {
		if (strcasecmp(value, truths[i]) == 0)
			return 1;
		if (strcasecmp(value, falsehoods[i]) == 0)
			return 0;
	}
	return fallback;
}

int ini_set(struct ini_file *file, const char *section_name, const char *key, const char *value)
{
	struct ini_section *section = find_section(file, section_name);
	struct ini_entry *entry;
	char *copy;

	if (section == NULL)
		section = append_section(file, section_name);
	if (section == NULL)
		return -1;
	entry = find_entry(section, key);
	if (entry == NULL)
		return append_entry(section, key, value) == NULL ? -1 : 0;
	copy = duplicate_string(value);
	if (copy == NULL)
		return -1;
	free(entry->value);
	entry->value = copy;
	return 0;
}

int ini_remove(struct ini_file *file, const char *section_name, const char *key)
{
	struct ini_section *section = find_section(file, section_name);
	struct ini_entry *previous = NULL;
	struct ini_entry *entry;

	if (section == NULL)
		return 0;
	for (entry = section->first_entry; entry != NULL; previous = entry, entry = entry->next) {
		if (!same_name(entry->key, key))
			continue;
		if (previous == NULL)
			section->first_entry = entry->next;
		else
			previous->next = entry->next;
		if (section->last_entry == entry)
			section->last_entry = previous;
		release_entry(entry);
		return 1;
	}
	return 0;
}

int ini_each(const struct ini_file *file,
	     int (*visit)(void *context, const struct ini_section *section, const struct ini_entry *entry),
	     void *context)
{
	const struct ini_section *section;
	const struct ini_entry *entry;
	int result;

	for (section = file->first_section; section != NULL; section = section->next) {
		for (entry = section->first_entry; entry != NULL; entry = entry->next) {
			result = visit(context, section, entry);
			if (result != 0)
				return result;
		}
	}
	return 0;
}
