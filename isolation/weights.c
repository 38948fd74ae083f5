#include "weights.h"

#include <ctype.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "granules.h"

bool is_cubin(const void *content) {
    return strncmp(content, ELFMAG, SELFMAG) == 0;
}

/* ------------------------------------------------------------------ cubins */

/* Sections of a cubin that holds as many bytes; more than 65,279 of them are counted in the first. UINT64_MAX if their
 * table does not lie in it. */
static uint64_t sections_of(const unsigned char *image, uint64_t size, const Elf64_Ehdr *head) {
    Elf64_Shdr first;
    if (!head->e_shoff) return 0;
    if (head->e_shentsize != sizeof first || head->e_shoff > size || size - head->e_shoff < sizeof first)
        return UINT64_MAX;
    memcpy(&first, image + head->e_shoff, sizeof first);
    uint64_t count = head->e_shnum ? head->e_shnum : first.sh_size;
    return count <= (size - head->e_shoff) / sizeof first ? count : UINT64_MAX;
}

uint64_t cubin_bytes(const unsigned char *image, uint64_t size) {
    Elf64_Ehdr head;
    if (size < sizeof head) return UNKNOWN_WEIGHT;
    memcpy(&head, image, sizeof head);
    uint64_t all = 0, sections = sections_of(image, size, &head);
    if (sections == UINT64_MAX) return UNKNOWN_WEIGHT;
    for (uint64_t i = 0; i < sections; i++) {
        Elf64_Shdr section;
        memcpy(&section, image + head.e_shoff + i * sizeof section, sizeof section);
        if (!(section.sh_flags & SHF_ALLOC)) continue;
        if (section.sh_size > LARGEST_SIZE) return UNKNOWN_WEIGHT;
        all += section.sh_size;
    }
    return all;
}

static void reach(uint64_t *end, uint64_t at, uint64_t bytes) {
    if (at > LARGEST_SIZE || bytes > LARGEST_SIZE) at = LARGEST_SIZE;
    if (at + bytes > *end) *end = at + bytes;
}

uint64_t cubin_length(const unsigned char *image) {
    Elf64_Ehdr head;
    memcpy(&head, image, sizeof head);
    uint64_t end = sizeof head, sections = sections_of(image, LARGEST_SIZE, &head);
    reach(&end, head.e_phoff, (uint64_t)head.e_phnum * head.e_phentsize);
    if (sections > LARGEST_SIZE / sizeof(Elf64_Shdr)) return end;
    reach(&end, head.e_shoff, sections * sizeof(Elf64_Shdr));
    for (uint64_t i = 0; i < sections; i++) {
        Elf64_Shdr section;
        memcpy(&section, image + head.e_shoff + i * sizeof section, sizeof section);
        if (section.sh_type != SHT_NOBITS) reach(&end, section.sh_offset, section.sh_size);
    }
    return end;
}

/* ------------------------------------------------------------------ text */

/* A word with its dots, or one character; nothing at the end. */
struct token {
    const char *at;
    size_t length;
};

struct text {
    const char *at, *end;
};

static void pass_to(struct text *text, const char *what) {
    const char *found = memmem(text->at, (size_t)(text->end - text->at), what, strlen(what));
    text->at = found ? found + strlen(what) : text->end;
}

static bool begins(const struct text *text, const char *what) {
    return (size_t)(text->end - text->at) >= strlen(what) && strncmp(text->at, what, strlen(what)) == 0;
}

/* Spaces, remarks and strings say nothing of sizes. */
static void pass_empty(struct text *text) {
    for (const char *before = NULL; before != text->at;) {
        before = text->at;
        if (begins(text, "//"))
            pass_to(text, "\n");
        else if (begins(text, "/*"))
            text->at += 2, pass_to(text, "*/");
        else if (begins(text, "\""))
            text->at++, pass_to(text, "\"");
        else if (text->at < text->end && (isspace((unsigned char)*text->at) || !*text->at))
            text->at++;
    }
}

static bool in_word(char c) {
    return isalnum((unsigned char)c) || strchr("._$%", c);
}

static struct token next_token(struct text *text) {
    pass_empty(text);
    struct token token = {.at = text->at};
    while (text->at < text->end && *text->at && in_word(*text->at)) text->at++;
    if (text->at == token.at && text->at < text->end) text->at++;
    token.length = (size_t)(text->at - token.at);
    return token;
}

static bool is(struct token token, const char *what) {
    return token.length == strlen(what) && strncmp(token.at, what, token.length) == 0;
}

static bool is_register(struct token token) {
    return token.length && *token.at == '%';
}

/* A whole number in C's notation, or UINT64_MAX. */
static uint64_t number_of(struct token token) {
    char digits[32], *end;
    if (!token.length || token.length >= sizeof digits || !isdigit((unsigned char)*token.at)) return UINT64_MAX;
    memcpy(digits, token.at, token.length);
    digits[token.length] = 0;
    if (digits[token.length - 1] == 'U') digits[token.length - 1] = 0;
    bool binary = digits[0] == '0' && (digits[1] == 'b' || digits[1] == 'B');
    uint64_t number = strtoull(digits + (binary ? 2 : 0), &end, binary ? 2 : 0);
    return *end ? UINT64_MAX : number;
}

/* The bits that a word of a declaration is of: a type, or how many of it make a vector. 0 if it is neither. */
static uint64_t bits_of_word(struct token token, char kind) {
    size_t at = 1;
    uint64_t number = 0;
    if (token.length < 2 || *token.at != '.' || (kind == 'v') != (token.at[1] == 'v')) return 0;
    while (at < token.length && isalpha((unsigned char)token.at[at])) at++;
    for (; at < token.length && isdigit((unsigned char)token.at[at]) && number < 4096; at++)
        number = 10 * number + (uint64_t)(token.at[at] - '0');
    bool twice = at + 2 == token.length && token.at[at] == 'x' && token.at[at + 1] == '2';
    return at == token.length ? number : twice ? 2 * number : 0;
}

struct declared {
    uint64_t all, bits, vector, count;
};

static bool end_one(struct declared *told) {
    uint64_t bytes = (told->bits + 7) / 8 * told->vector;
    if (__builtin_mul_overflow(bytes, told->count, &bytes) || bytes > LARGEST_SIZE) return false;
    told->all += bytes;
    told->count = 1;
    return told->all <= LARGEST_SIZE;
}

/* `[12]`, or `[]`, whose content stands behind. */
static bool read_dimension(struct text *text, struct declared *told) {
    struct token token = next_token(text);
    if (is(token, "]")) return true;
    uint64_t count = number_of(token);
    if (count == UINT64_MAX || !is(next_token(text), "]")) return false;
    return !__builtin_mul_overflow(told->count, count, &told->count);
}

/* Whether a declaration is over: by its own end, or that of the parameter that it stands in, or where code begins. */
static bool ends(struct token token, int *open, bool value) {
    if (is(token, "(") || (value && is(token, "{"))) ++*open;
    if (is(token, ")") || is(token, "}")) --*open;
    return is(token, ";") || *open < 0 || (!value && is(token, "{"));
}

static void read_word(struct token token, struct declared *told) {
    uint64_t bits = bits_of_word(token, 0), vector = bits_of_word(token, 'v');
    if (bits) told->bits = bits;
    if (vector) told->vector = vector;
}

/* What stands behind `.global` or `.const`: `.align 8 .b8 name[12][34], other = 5`. An instruction that reads or writes
 * there has registers (`ld .global .u32 %r1, [%rd1]`), and takes nothing. */
static uint64_t declaration(struct text *text) {
    struct declared told = {.vector = 1, .count = 1};
    int open = 0;
    bool value = false;
    for (struct token token = next_token(text); token.length; token = next_token(text)) {
        if (is_register(token)) return told.all;
        if (ends(token, &open, value)) break;
        if (is(token, "=")) value = true;
        if (open) continue;
        if (is(token, ",")) {
            if (!end_one(&told)) return UNKNOWN_WEIGHT;
            value = false;
        }
        if (value) continue;
        read_word(token, &told);
        struct text behind = *text;
        if (is(token, "[") && !is_register(next_token(&behind)) && !read_dimension(text, &told)) return UNKNOWN_WEIGHT;
    }
    return end_one(&told) ? told.all : UNKNOWN_WEIGHT;
}

uint64_t text_variables(const char *content, uint64_t length) {
    struct text text = {content, content + length};
    uint64_t all = 0;
    for (struct token token = next_token(&text); token.length; token = next_token(&text)) {
        if (!is(token, ".global") && !is(token, ".const")) continue;
        uint64_t bytes = declaration(&text);
        if (bytes > LARGEST_SIZE) return UNKNOWN_WEIGHT;
        all += bytes;
        if (all > LARGEST_SIZE) return UNKNOWN_WEIGHT;
    }
    return all;
}
