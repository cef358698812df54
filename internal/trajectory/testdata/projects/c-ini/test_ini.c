#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ini.h"
#include "strbuf.h"

static int failures;
static int checks_done;

#define CHECK_STRING(got, want) check_string(__FILE__, __LINE__, got, want)
#define CHECK_NUMBER(got, want) check_number(__FILE__, __LINE__, got, want)

static void check_string(const char *file, int line, const char *got, const char *want)
{
	checks_done++;
	if (got == NULL || strcmp(got, want) != 0) {
		fprintf(stderr, "%s:%d: got \"%s\", want \"%s\"\n", file, line, got == NULL ? "(null)" : got, want);
		failures++;
	}
}

static void check_number(const char *file, int line, long got, long want)
{
	checks_done++;
	if (got != want) {
		fprintf(stderr, "%s:%d: got %ld, want %ld\n", file, line, got, want);
		failures++;
	}
}

static const char sample_file[] =
	"; the settings of a server\n"
	"name = example\n"
	"\n"
	"[Server]\n"
	"host = localhost ; where it listens\n"
	"port = 0x1F90\n"
	"verbose = Yes\n"
	"greeting = \" hello; \\\"world\\\" \"\n"
	"\n"
	"[client]\n"
	"retries = many\n"
	"empty =\n";

static void test_reading_values(void)
{
	struct ini_file file;
	struct ini_error error;

	ini_init(&file);
	CHECK_NUMBER(ini_load_string(&file, sample_file, &error), 0);
	CHECK_STRING(ini_get(&file, "", "name"), "example");
	CHECK_STRING(ini_get(&file, "Server", "host"), "localhost");
	CHECK_STRING(ini_get(&file, "Server", "greeting"), " hello; \"world\" ");
	CHECK_NUMBER(ini_get_int(&file, "Server", "port", 1), 8080);
	CHECK_NUMBER(ini_get_int(&file, "client", "retries", 3), 3);
	CHECK_NUMBER(ini_get_bool(&file, "Server", "verbose", 0), 1);
	CHECK_STRING(ini_get(&file, "client", "empty"), "");
	ini_release(&file);
}

static void test_errors_name_the_line(void)
{
	static const struct {
		const char *text;
		int line_number;
		const char *message;
	} cases[] = {
		{"a = 1\n[b\n", 2, "a section has no closing bracket"},
		{"a = 1\n\n= 2\n", 3, "a value has no key"},
		{"\n\nwhat\n", 3, "a line is neither a section nor a key with a value"},
		{"a = \"b\n", 1, "a quoted value has no end"},
		{"a = \"b\" c\n", 1, "there is text after a quoted value"},
		{"[ ]\n", 1, "a section has no name"},
	};
	size_t i;

	for (i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct ini_file file;
		struct ini_error error = {0};

		ini_init(&file);
		CHECK_NUMBER(ini_load_string(&file, cases[i].text, &error), -1);
		CHECK_NUMBER(error.line_number, cases[i].line_number);
		CHECK_STRING(error.message, cases[i].message);
		ini_release(&file);
	}
}

static void test_changing_values(void)
{
	struct ini_file file;

	ini_init(&file);
	CHECK_NUMBER(ini_set(&file, "a", "x", "1"), 0);
	CHECK_NUMBER(ini_set(&file, "a", "y", "2"), 0);
	CHECK_NUMBER(ini_set(&file, "a", "x", "3"), 0);
	CHECK_STRING(ini_get(&file, "a", "x"), "3");
	CHECK_NUMBER(ini_remove(&file, "a", "y"), 1);
	CHECK_NUMBER(ini_remove(&file, "a", "y"), 0);
	CHECK_NUMBER(ini_get(&file, "a", "y") == NULL, 1);
	ini_release(&file);
}

static void test_strbuf(void)
{
	struct strbuf buffer;
	int i;

	strbuf_init(&buffer);
	for (i = 0; i < 100; i++)
		CHECK_NUMBER(strbuf_printf(&buffer, "%d,", i), 0);
	CHECK_NUMBER((long)buffer.length, 290);
	strbuf_reset(&buffer);
	CHECK_NUMBER(strbuf_append_string(&buffer, "  two words \n"), 0);
	strbuf_trim(&buffer);
	CHECK_STRING(buffer.data, "two words");
	strbuf_release(&buffer);
}

int main(void)
{
	test_strbuf();
	test_reading_values();
	test_errors_name_the_line();
	test_changing_values();
	printf("%d checks, %d failures\n", checks_done, failures);
	return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
