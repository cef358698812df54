#ifndef STRBUF_H
#define STRBUF_H

#include <stddef.h>

/* A string that grows. data ends in a NUL that length does not count. */
struct strbuf {
	char *data;
	size_t length;
	size_t capacity;
};

/* strbuf_init makes an empty buffer. Nothing is allocated before it is used. */
void strbuf_init(struct strbuf *buffer);
void strbuf_release(struct strbuf *buffer);
void strbuf_reset(struct strbuf *buffer);

/* These return 0, or -1 when there is no memory; the buffer is then as it was. */
int strbuf_append(struct strbuf *buffer, const char *text, size_t length);
int strbuf_append_string(struct strbuf *buffer, const char *text);
int strbuf_append_char(struct strbuf *buffer, char c);
int strbuf_printf(struct strbuf *buffer, const char *format, ...);

/* strbuf_trim takes white space from both ends. */
void strbuf_trim(struct strbuf *buffer);

/* strbuf_detach returns the text, to be freed, and leaves the buffer empty. */
char *strbuf_detach(struct strbuf *buffer);

#endif
