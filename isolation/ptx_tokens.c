#include "ptx_tokens.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "granules.h"

#define DEEPEST 32 /* parentheses in a size: they take our stack */

static char char_at(const struct text *text, size_t ahead) {
    return (size_t)(text->end - text->at) > ahead ? text->at[ahead] : 0;
}

struct token bad_token(struct text *text) {
    text->bad = true;
    text->at = text->end;
    return (struct token){.at = text->end};
}

/* ------------------------------------------------------------------ what says nothing */

/* A backslash before the end of a line: for one reader the next belongs to it, for another it does not. */
static bool goes_on(const struct text *text) {
    return *text->at == '\\' && strchr("\r\n", char_at(text, 1));
}

/* A return without a new line ends it for some only, too. */
static bool pass_line(struct text *text) {
    for (; text->at < text->end && *text->at && *text->at != '\n'; text->at++)
        if (goes_on(text) || (*text->at == '\r' && char_at(text, 1) != '\n')) return false;
    return true;
}

static bool pass_remark(struct text *text) {
    const char *from = text->at + 2, *found = memmem(from, (size_t)(text->end - from), "*/", 2);
    if (!found) return false;
    for (text->at = from; text->at < found; text->at++)
        if (!*text->at || goes_on(text)) return false;
    text->at = found + 2;
    return true;
}

/* Text ends with a zero, and nothing stands behind it. */
static bool pass_zeros(struct text *text) {
    while (text->at < text->end && !*text->at) text->at++;
    return text->at == text->end;
}

static bool pass_empty(struct text *text) {
    while (text->at < text->end) {
        if (!*text->at) return pass_zeros(text);
        bool remark = *text->at == '/', told = true;
        if (remark && char_at(text, 1) == '/')
            told = pass_line(text);
        else if (remark && char_at(text, 1) == '*')
            told = pass_remark(text);
        else if (isspace((unsigned char)*text->at))
            text->at++;
        else
            return true;
        if (!told) return false;
    }
    return true;
}

/* ------------------------------------------------------------------ tokens */

static bool in_name(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '$';
}

static void pass_name(struct text *text) {
    while (text->at < text->end && in_name(*text->at)) text->at++;
}

/* `12`, `0x1FU`, `8.0`, `1.`; behind the 8 of `8.b8` a word begins. */
static void pass_number(struct text *text) {
    pass_name(text);
    bool whole = char_at(text, 0) != '.' || (in_name(char_at(text, 1)) && !isdigit((unsigned char)char_at(text, 1)));
    if (!whole) text->at++, pass_name(text);
}

/* Up to the quotation mark. With a backslash before it it may be the string's own, or not. */
static bool pass_string(struct text *text) {
    bool escaped = false;
    for (text->at++; text->at < text->end && *text->at && !strchr("\r\n", *text->at); text->at++) {
        if (*text->at == '"') return text->at++, !escaped;
        escaped = *text->at == '\\' && !escaped;
    }
    return false;
}

static enum token_kind kind_of(const struct text *text) {
    char first = *text->at, second = char_at(text, 1);
    if (first == '.' && in_name(second)) return WORD;
    if (isdigit((unsigned char)first)) return NUMBER;
    if (isalpha((unsigned char)first) || (strchr("_$%", first) && in_name(second))) return NAME;
    return first == '"' ? STRING : first == '_' ? NAME : SIGN;
}

static bool pass_token(struct text *text, enum token_kind kind) {
    if (kind == NUMBER) return pass_number(text), true;
    if (kind == STRING) return pass_string(text);
    bool known = kind != SIGN || strchr("{}[]()<>,;:=+-*/%&|^~!?@.", *text->at);
    text->at++;
    if (kind != SIGN) pass_name(text);
    return known;
}

struct token next_token(struct text *text) {
    if (text->bad || !pass_empty(text)) return bad_token(text);
    struct token token = {.at = text->at};
    if (text->at == text->end) return token;
    token.kind = kind_of(text);
    if (!pass_token(text, token.kind)) return bad_token(text);
    token.length = (size_t)(text->at - token.at);
    return token;
}

/* Neither ends a statement nor begins a remark or a string. */
static const bool is_plain[256] = {
    ['a' ... 'z'] = true, ['A' ... 'Z'] = true, ['0' ... '9'] = true, ['_'] = true, ['$'] = true, ['%'] = true,
    ['.'] = true, [','] = true, ['['] = true, [']'] = true, ['{'] = true, ['}'] = true, ['('] = true, [')'] = true,
    ['+'] = true, ['-'] = true, ['!'] = true, [':'] = true, [' '] = true, ['\t'] = true, ['\n'] = true,
};

void pass_statement(struct text *text) {
    struct token token = {.kind = SIGN};
    while (token.kind != END && !is(token, ";")) {
        while (text->at < text->end && is_plain[(unsigned char)*text->at]) text->at++;
        token = next_token(text);
    }
}

struct token peek_token(const struct text *text) {
    struct text behind = *text;
    return next_token(&behind);
}

bool begins_with(struct token token, const char *what) {
    return token.length >= strlen(what) && strncmp(token.at, what, strlen(what)) == 0;
}

bool is(struct token token, const char *what) {
    return token.length == strlen(what) && begins_with(token, what);
}

bool take(struct text *text, const char *what) {
    struct text behind = *text;
    if (!is(next_token(&behind), what)) return false;
    *text = behind;
    return true;
}

/* ------------------------------------------------------------------ sizes */

/* In C's notation, or UINT64_MAX. */
static uint64_t number_of(struct token token) {
    char digits[80], *end;
    if (token.kind != NUMBER || token.length >= sizeof digits) return UINT64_MAX;
    memcpy(digits, token.at, token.length);
    digits[token.length] = 0;
    if (digits[token.length - 1] == 'U') digits[token.length - 1] = 0;
    bool binary = digits[0] == '0' && (digits[1] == 'b' || digits[1] == 'B');
    if (binary && !isdigit((unsigned char)digits[2])) return UINT64_MAX;
    uint64_t number = strtoull(digits + (binary ? 2 : 0), &end, binary ? 2 : 0);
    return *end ? UINT64_MAX : number;
}

/* Whatever is not from 0 to LARGEST_SIZE on its way is refused: so it is the same with a sign and without. */
static uint64_t size_or_bad(struct text *text, uint64_t size) {
    if (size > LARGEST_SIZE) bad_token(text);
    return text->bad ? 0 : size;
}

static const struct operation {
    const char *first, *second; /* of what it consists */
    int rank;                   /* higher ones go first, as in C */
} operations[] = {{"|", NULL, 1}, {"^", NULL, 2}, {"&", NULL, 3}, {"<", "<", 4}, {">", ">", 4},
                  {"+", NULL, 5}, {"-", NULL, 5}, {"*", NULL, 6}, {"/", NULL, 6}};

/* The next one if it ranks as high; what is none of them ends the size. */
static const struct operation *take_operation(struct text *text, int rank) {
    for (const struct operation *it = operations; it < operations + sizeof operations / sizeof *it; it++) {
        struct text behind = *text;
        if (it->rank < rank || !is(next_token(&behind), it->first)) continue;
        if (it->second && (char_at(&behind, 0) != *it->second || !is(next_token(&behind), it->second))) continue;
        *text = behind;
        return it;
    }
    return NULL;
}

/* Both are LARGEST_SIZE at most: a sum is in 64 bits, and a difference below zero is as large as no size. */
static uint64_t result_of(char sign, uint64_t left, uint64_t right) {
    uint64_t result = UINT64_MAX;
    if (sign == '|') result = left | right;
    if (sign == '^') result = left ^ right;
    if (sign == '&') result = left & right;
    if (sign == '+') result = left + right;
    if (sign == '-') result = left - right;
    if (sign == '*' && __builtin_mul_overflow(left, right, &result)) result = UINT64_MAX;
    if (sign == '/' && right) result = left / right;
    if (sign == '<' && right < 64 && left <= LARGEST_SIZE >> right) result = left << right;
    if (sign == '>' && right < 64) result = left >> right;
    return result;
}

static uint64_t read_ranked(struct text *text, int rank, int depth);

static uint64_t read_one(struct text *text, int depth) {
    if (depth > DEEPEST) bad_token(text);
    if (!take(text, "(")) return size_or_bad(text, number_of(next_token(text)));
    uint64_t size = read_ranked(text, 0, depth + 1);
    if (!take(text, ")")) bad_token(text);
    return size_or_bad(text, size);
}

static uint64_t read_ranked(struct text *text, int rank, int depth) {
    uint64_t left = read_one(text, depth);
    for (const struct operation *operation; (operation = take_operation(text, rank));) {
        uint64_t right = read_ranked(text, operation->rank + 1, depth);
        left = size_or_bad(text, result_of(*operation->first, left, right));
    }
    return left;
}

uint64_t read_size(struct text *text) {
    return size_or_bad(text, read_ranked(text, 0, 0));
}
