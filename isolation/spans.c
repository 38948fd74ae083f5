/* A treap: a tree by address, and a heap by a number drawn from the address, which keeps it about as deep as it need be. */
#include "spans.h"

#include <stdbool.h>
#include <stddef.h>

static uint64_t rank(const struct span *span) {
    uint64_t mixed = ((uintptr_t)span ^ span->address * 0x9E3779B97F4A7C15ULL) * 0xBF58476D1CE4E5B9ULL;
    return mixed ^ mixed >> 31;
}

static bool is_before(const struct span *one, const struct span *other) {
    return one->address != other->address ? one->address < other->address : (uintptr_t)one < (uintptr_t)other;
}

static uint64_t furthest(const struct span *tree) {
    return tree ? tree->furthest : 0;
}

static struct span *measured(struct span *span) {
    uint64_t left = furthest(span->left), right = furthest(span->right);
    span->furthest = span->end > left ? span->end : left;
    if (right > span->furthest) span->furthest = right;
    return span;
}

/* Everything before a span, and everything behind it. */
static void split(struct span *tree, const struct span *at, struct span **before, struct span **behind) {
    if (!tree) {
        *before = *behind = NULL;
    } else if (is_before(tree, at)) {
        split(tree->right, at, &tree->right, behind);
        *before = measured(tree);
    } else {
        split(tree->left, at, before, &tree->left);
        *behind = measured(tree);
    }
}

static struct span *joined(struct span *before, struct span *behind) {
    if (!before || !behind) return before ? before : behind;
    if (rank(before) > rank(behind)) {
        before->right = joined(before->right, behind);
        return measured(before);
    }
    behind->left = joined(before, behind->left);
    return measured(behind);
}

void spans_add(struct span **tree, struct span *span) {
    if (*tree && rank(*tree) >= rank(span)) {
        spans_add(is_before(span, *tree) ? &(*tree)->left : &(*tree)->right, span);
        measured(*tree);
        return;
    }
    split(*tree, span, &span->left, &span->right);
    *tree = measured(span);
}

void spans_remove(struct span **tree, struct span *span) {
    if (*tree == span) {
        *tree = joined(span->left, span->right);
        return;
    }
    spans_remove(is_before(span, *tree) ? &(*tree)->left : &(*tree)->right, span);
    measured(*tree);
}

struct span *spans_next(struct span *tree, const struct span *after, uint64_t address, uint64_t end) {
    if (!tree || tree->furthest <= address) return NULL;
    if (!after || is_before(after, tree)) {
        struct span *found = spans_next(tree->left, after, address, end);
        if (found) return found;
        if (tree->address < end && tree->end > address) return tree;
    }
    return tree->address < end ? spans_next(tree->right, after, address, end) : NULL;
}
