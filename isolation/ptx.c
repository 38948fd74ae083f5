/* Text is statements. What begins with a name is an instruction, or a label before a statement: no variable is declared
 * there, whatever words follow the name. What begins with a word (`.visible`) is a directive: all that declare are read
 * word by word, of five it is known where they end, and some others end with a `;` or where a body begins. All that is
 * none of these is refused.
 *
 * What must hold: `.global` and `.const` in a directive are read as a declaration, or the text is refused. */
#include "ptx.h"

#include <ctype.h>

#include "granules.h"
#include "ptx_tokens.h"
#include "weights.h"

#define LARGEST_HANDLE 512 /* bits of a texture's or a surface's: the manual does not tell */

struct known {
    const char *word;
    unsigned number;
};

/* With the bits of each. */
static const struct known types[] = {
    {".b8", 8},        {".u8", 8},        {".s8", 8},       {".b16", 16},     {".u16", 16},     {".s16", 16},
    {".b32", 32},      {".u32", 32},      {".s32", 32},     {".b64", 64},     {".u64", 64},     {".s64", 64},
    {".b128", 128},    {".f16", 16},      {".bf16", 16},    {".f32", 32},     {".tf32", 32},    {".f64", 64},
    {".f16x2", 32},    {".bf16x2", 32},   {".f32x2", 64},   {".u16x2", 32},   {".s16x2", 32},   {".u8x4", 32},
    {".s8x4", 32},     {".e4m3", 8},      {".e5m2", 8},     {".e2m3", 8},     {".e3m2", 8},     {".e2m1", 8},
    {".e4m3x2", 16},   {".e5m2x2", 16},   {".e2m3x2", 16},  {".e3m2x2", 16},  {".e2m1x2", 8},   {".ue8m0x2", 16},
    {".e4m3x4", 32},   {".e5m2x4", 32},   {".e2m3x4", 32},  {".e3m2x4", 32},  {".e2m1x4", 16},  {".pred", 8},
    {".texref", LARGEST_HANDLE},          {".samplerref", LARGEST_HANDLE},    {".surfref", LARGEST_HANDLE},
};

static const struct known vectors[] = {{".v2", 2}, {".v4", 4}, {".v8", 8}};

static const char *const others[] = {".entry", ".func",  ".reg",           ".sreg",        ".local",         ".shared",
                                     ".param", ".alias", ".branchtargets", ".calltargets", ".callprototype", ".pragma"};

/* What is said of all variables of a declaration. */
struct declared {
    uint64_t bits, vector, align; /* vector: 0 if it is none */
    bool memory, outside;         /* in memory of the device; defined elsewhere */
};

#define MANY(list) (sizeof(list) / sizeof *(list))

static bool in_memory(struct token token) {
    return is(token, ".global") || is(token, ".const") || is(token, ".tex");
}

/* Or it begins so: a reader that knows its words by heart would take the rest for a name. */
static bool may_be_memory(struct token token) {
    return begins_with(token, ".global") || begins_with(token, ".const") || is(token, ".tex");
}

/* A directive without variables, or the head of a function; those of its parameters that point to memory are in
 * parentheses. */
static void pass_directive(struct text *text) {
    int open = 0;
    for (struct token token = next_token(text); token.kind != END; token = next_token(text)) {
        if (is(token, "(")) open++;
        if (is(token, ")")) open--;
        bool ends = is(token, ";") || is(token, "{");
        if ((open && ends) || (!open && may_be_memory(token))) bad_token(text);
        if (ends) return;
    }
}

/* `.file 1 "a.cu", 2, 3`, `.loc 1 2 3, function_name name+4, inlined_at 1 2 3`: no sign ends it. */
static void pass_operands(struct text *text) {
    for (struct token token = peek_token(text);; token = peek_token(text)) {
        if (is(token, ",") || is(token, "+")) {
            next_token(text);
            token = peek_token(text);
            if (is(token, "function_name")) next_token(text), token = peek_token(text);
            if (token.kind != NAME && token.kind != NUMBER && token.kind != STRING) bad_token(text);
        } else if (token.kind != NUMBER && token.kind != STRING) {
            return;
        }
        next_token(text);
    }
}

/* Tables of a debugger, none of which is a variable: `.section .debug_info { .b8 1, 2 name: .b32 name }`. */
static void pass_section(struct text *text) {
    struct token token = next_token(text);
    while (token.kind == WORD || token.kind == NAME) token = next_token(text);
    if (!is(token, "{")) bad_token(text);
    while (token.kind != END && !is(token, "}")) {
        token = next_token(text);
        if (is(token, "[") || is(token, "<") || is(token, "{") || may_be_memory(token)) bad_token(text);
    }
}

/* ------------------------------------------------------------------ declarations */

static unsigned number_of(struct token token, const struct known *list, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (is(token, list[i].word)) return list[i].number;
    return 0;
}

/* What is said a second time is not known. */
static bool read_type(struct declared *told, struct token token) {
    unsigned bits = number_of(token, types, MANY(types)), vector = number_of(token, vectors, MANY(vectors));
    if ((!bits && !vector) || (bits && told->bits) || (vector && told->vector)) return false;
    told->bits += bits;
    told->vector += vector;
    return true;
}

static bool pass_parentheses(struct text *text) {
    int open = take(text, "(");
    if (!open) return false;
    while (open && !text->bad) {
        struct token token = next_token(text);
        open += is(token, "(") ? 1 : is(token, ")") ? -1 : 0;
        if (token.kind == END) bad_token(text);
    }
    return true;
}

/* A number stands behind it; anything else would be its variable's name. */
static bool read_align(struct text *text, struct declared *told) {
    uint64_t align = read_size(text);
    if (align > told->align) told->align = align;
    return align;
}

/* Old text numbers its constant banks: `.const[2]`. */
static bool read_space(struct text *text, struct declared *told) {
    told->memory = true;
    if (take(text, "[") && (read_size(text), !take(text, "]"))) bad_token(text);
    return true;
}

/* One of the words before a variable's name; false if it is none of them. */
static bool read_word(struct text *text, struct declared *told, struct token token) {
    if (is(token, ".extern")) return told->outside = true;
    if (is(token, ".visible") || is(token, ".weak") || is(token, ".common")) return true;
    if (is(token, ".align")) return read_align(text, told);
    if (is(token, ".attribute")) return pass_parentheses(text);
    if (in_memory(token)) return read_space(text, told);
    return read_type(told, token);
}

/* `{1, {2, 3}, generic(a)}` or `5` or `"abc"`: how many it is at the outside, which may be rows. */
static uint64_t read_content(struct text *text) {
    uint64_t items = 1;
    int braces = 0, parentheses = 0;
    for (struct token token = peek_token(text);; token = peek_token(text)) {
        bool outside = !braces && !parentheses;
        if (token.kind == STRING && !braces) items = token.length;
        if (outside && (is(token, ",") || is(token, ";"))) return items;
        if (token.kind == END || is(token, ";") || may_be_memory(token)) bad_token(text);
        if (text->bad) return 0;
        if (is(token, "{")) braces++;
        if (is(token, "}")) braces--;
        if (is(token, "(")) parentheses++;
        if (is(token, ")")) parentheses--;
        if (is(token, ",") && braces == 1) items++;
        next_token(text);
    }
}

static void multiply(struct text *text, uint64_t *bytes, uint64_t by) {
    if (__builtin_mul_overflow(*bytes, by, bytes) || *bytes > LARGEST_SIZE) bad_token(text);
}

/* `[12][34]`, of which the first may be empty: then its content says how many, and without any it can be one. */
static void read_dimensions(struct text *text, const struct declared *told, uint64_t *bytes) {
    bool unsized = false;
    for (int i = 0; take(text, "["); i++) {
        unsized = unsized || (i == 0 && is(peek_token(text), "]"));
        if (i > 0 || !unsized) multiply(text, bytes, read_size(text));
        if (!take(text, "]")) bad_token(text);
    }
    uint64_t items = take(text, "=") ? read_content(text) : !told->outside;
    if (unsized) multiply(text, bytes, items);
}

/* `name<8>`: name0 to name7, each where its alignment says. */
static void read_numbered(struct text *text, const struct declared *told, uint64_t *bytes) {
    *bytes = (*bytes + told->align - 1) / told->align * told->align;
    multiply(text, bytes, read_size(text));
    if (!take(text, ">")) bad_token(text);
}

/* With as much as its alignment may leave empty before it. */
static uint64_t read_variable(struct text *text, const struct declared *told) {
    uint64_t bytes = told->bits / 8 * (told->vector ? told->vector : 1);
    if (next_token(text).kind != NAME) bad_token(text);
    if (take(text, "<"))
        read_numbered(text, told, &bytes);
    else
        read_dimensions(text, told, &bytes);
    return bytes + told->align - 1;
}

/* What stands behind the words: `name[12], other = 5;`. */
static uint64_t read_variables(struct text *text, const struct declared *told) {
    uint64_t all = 0;
    if (!told->bits) bad_token(text);
    do {
        all += read_variable(text, told);
        if (all > LARGEST_SIZE) bad_token(text);
    } while (take(text, ","));
    if (!take(text, ";")) bad_token(text);
    return all;
}

static bool is_one_of(struct token token, const char *const *words, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (is(token, words[i])) return true;
    return false;
}

/* The bytes that a directive declares, from its first word on. */
static uint64_t read_directive(struct text *text, struct token token) {
    struct declared told = {.align = 1};
    while (read_word(text, &told, token)) {
        if (peek_token(text).kind != WORD) return told.memory ? read_variables(text, &told) : (bad_token(text), 0);
        token = next_token(text);
    }
    if (told.memory || !is_one_of(token, others, MANY(others)))
        bad_token(text);
    else
        pass_directive(text);
    return 0;
}

/* ------------------------------------------------------------------ statements */

static uint64_t read_statement(struct text *text, struct token token) {
    static const char *const lines[] = {".version", ".address_size", ".file", ".loc"};
    bool named = token.kind == NAME || (is(token, "@") && !is(peek_token(text), "@"));
    if (token.kind == NAME && take(text, ":")) return 0;
    if (is(token, ".target") && next_token(text).kind != NAME) bad_token(text);
    if (named)
        pass_statement(text);
    else if (is(token, ".section"))
        pass_section(text);
    else if (is(token, ".target") || is_one_of(token, lines, MANY(lines)))
        pass_operands(text);
    else if (token.kind == WORD)
        return read_directive(text, token);
    else if (!is(token, "{") && !is(token, "}") && !is(token, ";"))
        bad_token(text);
    return 0;
}

uint64_t text_variables(const char *content, uint64_t length) {
    struct text text = {.at = content, .end = content + length};
    uint64_t all = 0;
    for (struct token token = next_token(&text); token.kind != END; token = next_token(&text)) {
        all += read_statement(&text, token);
        if (all > LARGEST_SIZE) bad_token(&text);
    }
    return text.bad ? UNKNOWN_WEIGHT : all;
}

/* `.version 8.0 .target sm_90a, debug`: text for several kinds of GPU needs the highest, and names no lower one first. */
unsigned text_target(const char *content, uint64_t length) {
    struct text text = {.at = content, .end = content + length};
    if (!take(&text, ".version") || next_token(&text).kind != NUMBER || !take(&text, ".target")) return 0;
    struct token target = next_token(&text);
    unsigned machine = 0;
    if (target.kind != NAME || !begins_with(target, "sm_") || target.length > 7) return 0;
    for (size_t i = 3; i < target.length && isdigit((unsigned char)target.at[i]); i++)
        machine = machine * 10 + (unsigned)(target.at[i] - '0');
    return machine;
}
