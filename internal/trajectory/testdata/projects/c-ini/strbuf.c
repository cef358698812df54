#include "strbuf.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t smallest_capacity = 32;

void strbuf_init(struct strbuf *buffer)
{
	buffer->data = NULL;
	buffer->length = 0;
	buffer->capacity = 0;
}

void strbuf_release(struct strbuf *buffer)
{
	free(buffer->data);
	strbuf_init(buffer);
}

void strbuf_reset(struct strbuf *buffer)
{
	buffer->length = 0;
	if (buffer->data != NULL)
		buffer->data[0] = '\0';
}

/* reserve_capacity makes room for so many further bytes and the NUL. */
static int reserve_capacity(struct strbuf *buffer, size_t more)
{
	size_t wanted = buffer->length + more + 1;
	size_t capacity = buffer->capacity;
	char *data;

	if (wanted <= capacity)
		return 0;
	if (capacity < smallest_capacity)
		capacity = smallest_capacity;
	while (capacity < wanted)
		capacity *= 2;
	data = realloc(buffer->data, capacity);
	if (data == NULL)
		return -1;
	buffer->data = data;
	buffer->capacity = capacity;
	return 0;
}

int strbuf_append(struct strbuf *buffer, const char *text, size_t length)
{
	if (reserve_capacity(buffer, length) != 0)
		return -1;
	memcpy(buffer->data + buffer->length, text, length);
	buffer->length += length;
	buffer->data[buffer->length] = '\0';
	return 0;
}

int strbuf_append_string(struct strbuf *buffer, const char *text)
{
	return strbuf_append(buffer, text, strlen(text));
}

int strbuf_append_char(struct strbuf *buffer, char c)
{
	return strbuf_append(buffer, &c, 1);
}

int strbuf_printf(struct strbuf *buffer, const char *format, ...)
{
	va_list args;
	int wanted;

	va_start(args, format);
	wanted = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (wanted < 0 || reserve_capacity(buffer, (size_t)wanted) != 0)
		return -1;
	va_start(args, format);
	vsnprintf(buffer->data + buffer->length, (size_t)wanted + 1, format, args);
	va_end(args);
	buffer->length += (size_t)wanted;
	return 0;
}

void strbuf_trim(struct strbuf *buffer)
{
	size_t start = 0;

	while (buffer->length > 0 && isspace((unsigned char)buffer->data[buffer->length - 1]))
		buffer->length--;
	while (start < buffer->length && isspace((unsigned char)buffer->data[start]))
		start++;
	if (buffer->data == NULL)
		return;
	memmove(buffer->data, buffer->data + start, buffer->length - start);
	buffer->length -= start;
	buffer->data[buffer->length] = '\0';
}

char *strbuf_detach(struct strbuf *buffer)
{
	char *data = buffer->data;

	if (data == NULL)
		data = calloc(1, 1);
	strbuf_init(buffer);
	return data;
}
