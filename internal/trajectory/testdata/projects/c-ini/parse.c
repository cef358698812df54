#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "ini.h"
#include "strbuf.h"

/* The state of a file that is being read. */
struct ini_parser {
	struct ini_file *file;
	struct ini_error *error;
	char *current_section;
	struct strbuf pending_comment;
	int line_number;
};

static int parse_failure(struct ini_parser *parser, const char *message)
{
	if (parser->error != NULL) {
		parser->error->line_number = parser->line_number;
		strncpy(parser->error->message, message, sizeof parser->error->message - 1);
		parser->error->message[sizeof parser->error->message - 1] = '\0';
	}
	return -1;
}

/* skip_spaces returns the first character that is no space or tabulator. */
static char *skip_spaces(char *text)
{
	while (*text == ' ' || *text == '\t')
		text++;
	return text;
}

/* cut_trailing_spaces ends the text before its last white space. */
static void cut_trailing_spaces(char *text)
{
	size_t length = strlen(text);

	while (length > 0 && isspace((unsigned char)text[length - 1]))
		text[--length] = '\0';
}

/* cut_comment ends a value before a comment that follows it. */
static void cut_comment(char *value)
{
	char *mark = value;

	for (; *mark != '\0'; mark++) {
		if (*mark == ';' || *mark == '#') {
			*mark = '\0';
			return;
		}
	}
}

/* unquote_value takes the quotes from a value, and what is escaped in it. */
static int unquote_value(struct ini_parser *parser, char *value)
{
	char *from = value + 1;
	char *to = value;

	for (; *from != '"'; from++) {
		if (*from == '\0')
			return parse_failure(parser, "a quoted value has no end");
		if (*from == '\\' && (from[1] == '"' || from[1] == '\\'))
			from++;
		*to++ = *from;
	}
	from = skip_spaces(from + 1);
	if (*from != '\0' && *from != ';' && *from != '#')
		return parse_failure(parser, "there is text after a quoted value");
	*to = '\0';
	return 0;
}

static int parse_section_header(struct ini_parser *parser, char *line)
{
	char *end = strchr(line, ']');
	char *name;

	if (end == NULL)
		return parse_failure(parser, "a section has no closing bracket");
	*end = '\0';
	name = skip_spaces(line + 1);
	cut_trailing_spaces(name);
	if (*name == '\0')
		return parse_failure(parser, "a section has no name");
	free(parser->current_section);
	parser->current_section = malloc(strlen(name) + 1);
	if (parser->current_section == NULL)
		return parse_failure(parser, "out of memory");
	strcpy(parser->current_section, name);
	strbuf_reset(&parser->pending_comment);
	return 0;
}

static int parse_key_and_value(struct ini_parser *parser, char *line)
{
	char *equals = strchr(line, '=');
	char *value;

	if (equals == NULL)
		return parse_failure(parser, "a line is neither a section nor a key with a value");
	*equals = '\0';
	value = skip_spaces(equals + 1);
	cut_trailing_spaces(line);
	if (*line == '\0')
		return parse_failure(parser, "a value has no key");
	if (*value == '"') {
		if (unquote_value(parser, value) != 0)
			return -1;
	} else {
		cut_comment(value);
		cut_trailing_spaces(value);
	}
	if (ini_set(parser->file, parser->current_section, line, value) != 0)
		return parse_failure(parser, "out of memory");
	strbuf_reset(&parser->pending_comment);
	return 0;
}

static int parse_line(struct ini_parser *parser, char *line)
{
	line = skip_spaces(line);
	cut_trailing_spaces(line);
	parser->line_number++;
	switch (*line) {
	case '\0':
		return 0;
	case ';':
	case '#':
		return strbuf_append_string(&parser->pending_comment, line) ||
		       strbuf_append_char(&parser->pending_comment, '\n');
	case '[':
		return parse_section_header(parser, line);
	}
	return parse_key_and_value(parser, line);
}

static int parse_text(struct ini_parser *parser, char *text)
{
	while (text != NULL) {
		char *newline = strchr(text, '\n');

		if (newline != NULL)
			*newline++ = '\0';
		if (parse_line(parser, text) != 0)
			return -1;
		text = newline;
	}
	return 0;
}

int ini_load_string(struct ini_file *file, const char *text, struct ini_error *error)
{
	struct ini_parser parser = {0};
	struct ini_file loaded;
	char *copy = malloc(strlen(text) + 1);
	int result = -1;

	ini_init(&loaded);
	parser.file = &loaded;
	parser.error = error;
	strbuf_init(&parser.pending_comment);
	parser.current_section = calloc(1, 1);
	if (copy != NULL && parser.current_section != NULL) {
		strcpy(copy, text);
		result = parse_text(&parser, copy);
	}
	free(copy);
	free(parser.current_section);
	strbuf_release(&parser.pending_comment);
	if (result != 0) {
		ini_release(&loaded);
		return -1;
	}
	ini_release(file);
	*file = loaded;
	return 0;
}

int ini_load(struct ini_file *file, FILE *stream, struct ini_error *error)
{
	struct strbuf text;
	char block[4096];
	size_t count;
	int result;

	strbuf_init(&text);
	while ((count = fread(block, 1, sizeof block, stream)) > 0) {
		if (strbuf_append(&text, block, count) != 0) {
			strbuf_release(&text);
			return -1;
		}
	}
	result = ferror(stream) ? -1 : ini_load_string(file, text.data == NULL ? "" : text.data, error);
	strbuf_release(&text);
	return result;
}

static int needs_quotes(const char *value)
{
	size_t length = strlen(value);

	return length == 0 || isspace((unsigned char)value[0]) || isspace((unsigned char)value[length - 1]) ||
	       value[0] == '"';
}

static void write_value(const char *value, FILE *stream)
{
	if (!needs_quotes(value)) {
		fputs(value, stream);
		return;
	}
	fputc('"', stream);
	for (; *value != '\0'; value++) {
		if (*value == '"' || *value == '\\')
			fputc('\\', stream);
		fputc(*value, stream);
	}
	fputc('"', stream);
}

int ini_save(const struct ini_file *file, FILE *stream)
{
	const struct ini_section *section;
	const struct ini_entry *entry;

	for (section = file->first_section; section != NULL; section = section->next) {
		if (section->name[0] != '\0')
			fprintf(stream, "%s[%s]\n", section == file->first_section ? "" : "\n", section->name);
		for (entry = section->first_entry; entry != NULL; entry = entry->next) {
			fprintf(stream, "%s = ", entry->key);
			write_value(entry->value, stream);
			fputc('\n', stream);
		}
	}
	return ferror(stream) ? -1 : 0;
}
