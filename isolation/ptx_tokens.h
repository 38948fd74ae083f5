/* The words of text (PTX), as its manual tells them apart: a dot begins a new one.
 *
 * Text that two readers could split in two ways is not read: what the driver would make of it nobody knows. */
#ifndef ALIQUOT_PTX_TOKENS_H
#define ALIQUOT_PTX_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum token_kind { END, NAME, WORD, NUMBER, STRING, SIGN }; /* WORD: with its dot, as `.global`; SIGN: one character */

struct token {
    enum token_kind kind;
    const char *at;
    size_t length;
};

/* Ends for good, and is bad, where something is not understood. */
struct text {
    const char *at, *end;
    bool bad;
};

struct token next_token(struct text *text);

/* The one behind is not taken yet. */
struct token peek_token(const struct text *text);

/* Behind the next `;`, whatever stands before it: most of all text, which is passed in a tenth of the time. */
void pass_statement(struct text *text);

/* What none of the others understands ends all. */
struct token bad_token(struct text *text);

bool is(struct token token, const char *what);
bool begins_with(struct token token, const char *what);

/* Takes the next one if it is that. */
bool take(struct text *text, const char *what);

/* A whole number from 0 to LARGEST_SIZE: `12`, `0x10U`, `4*8`, `(1<<20)+16`; text is bad where there is none. */
uint64_t read_size(struct text *text);

#endif
