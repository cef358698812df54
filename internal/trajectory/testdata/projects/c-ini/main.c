#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ini.h"

static const char usage_text[] =
	"usage: ini get FILE SECTION KEY\n"
	"       ini set FILE SECTION KEY VALUE\n"
	"       ini remove FILE SECTION KEY\n"
	"       ini list FILE\n"
	"       ini check FILE\n";

static int print_usage(void)
{
	fputs(usage_text, stderr);
	return 2;
}

static int load_file(struct ini_file *file, const char *path)
{
	struct ini_error error = {0};
	FILE *stream = fopen(path, "r");
	int result;

	if (stream == NULL) {
		fprintf(stderr, "ini: %s: %s\n", path, strerror(errno));
		return -1;
	}
	result = ini_load(file, stream, &error);
	if (result != 0)
		fprintf(stderr, "ini: %s:%d: %s\n", path, error.line_number, error.message);
	fclose(stream);
	return result;
}

static int save_file(const struct ini_file *file, const char *path)
{
	FILE *stream = fopen(path, "w");

	if (stream == NULL || ini_save(file, stream) != 0 || fclose(stream) != 0) {
		fprintf(stderr, "ini: %s: %s\n", path, strerror(errno));
		return -1;
	}
	return 0;
}

static int print_entry(void *context, const struct ini_section *section, const struct ini_entry *entry)
{
	FILE *stream = context;

	return fprintf(stream, "%s.%s=%s\n", section->name, entry->key, entry->value) < 0;
}

static int run_command(struct ini_file *file, int count, char **words)
{
	const char *verb = words[0];
	const char *value;

	if (strcmp(verb, "list") == 0 && count == 2)
		return ini_each(file, print_entry, stdout);
	if (strcmp(verb, "check") == 0 && count == 2)
		return 0;
	if (strcmp(verb, "get") == 0 && count == 4) {
		value = ini_get(file, words[2], words[3]);
		if (value == NULL)
			return 1;
		puts(value);
		return 0;
	}
	if (strcmp(verb, "set") == 0 && count == 5)
		return ini_set(file, words[2], words[3], words[4]) != 0 || save_file(file, words[1]) != 0;
	if (strcmp(verb, "remove") == 0 && count == 4)
		return !ini_remove(file, words[2], words[3]) || save_file(file, words[1]) != 0;
	return print_usage();
}

int main(int argc, char **argv)
{
	struct ini_file file;
	int result;

	if (argc < 3)
		return print_usage();
	ini_init(&file);
	result = load_file(&file, argv[2]) != 0 ? 1 : run_command(&file, argc - 1, argv + 1);
	ini_release(&file);
	return result;
}
