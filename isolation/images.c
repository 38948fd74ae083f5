#include "images.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fat.h"
#include "holdings.h"
#include "processes.h"
#include "ptx.h"
#include "stills.h"
#include "weights.h"

#define FAT_WRAPPER 0x466243b1u
#define FAT_LINKED 2u         /* version of a wrapper that names what it was linked from */
#define MOST_LINKED 65536U
#define PADDING 64            /* zeros behind a copy: whatever begins in it can be looked at */
#define ALWAYS_COPIED (128U << 10) /* less costs less to copy than to look where it lies: a millisecond of many maps */

struct wrapper {
    uint32_t magic, version;
    const unsigned char *binary;
    const unsigned char *const *linked;
};

static bool is_wrapper(const void *image) {
    const uint32_t magic = FAT_WRAPPER;
    return strncmp(image, (const char *)&magic, sizeof magic) == 0; /* text may be shorter */
}

/* Of a copy; what of it can't be weighed is left out, as long as something is left. */
static uint64_t weight_of(unsigned char *content, uint64_t size) {
    if (is_wrapper(content)) return UNKNOWN_WEIGHT;
    if (is_cubin(content)) return cubin_bytes(content, size);
    if (is_fat(content)) return fat_keep_known(content, size);
    uint64_t variables = text_variables((const char *)content, size);
    return variables == UNKNOWN_WEIGHT ? variables : 2 * size + variables; /* its code is about as long as its text */
}

/* Room for a copy, with zeros behind it, so that text ends. */
static unsigned char *new_copy(struct image *image, uint64_t size) {
    struct copy *copy = size > LARGEST_SIZE ? NULL : malloc(sizeof *copy + size + PADDING);
    if (!copy) return NULL;
    memset(copy->content + size, 0, PADDING);
    copy->next = image->copies;
    image->copies = copy;
    return copy->content;
}

void copies_free(struct copy *copies) {
    while (copies) {
        struct copy *next = copies->next;
        free(copies);
        copies = next;
    }
}

/* Once: the driver's own answer would be the same, and who reads that looks for the fault in the image. */
static CUresult refuse(void) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&said))
        fprintf(stderr, "aliquot: code was not loaded: how much memory its variables take can't be read from it\n");
    return CUDA_ERROR_INVALID_IMAGE;
}

/* Of what is good for nothing nothing is left. */
static CUresult done_with(struct image *image, CUresult result) {
    if (result == CUDA_SUCCESS && image->bytes > LARGEST_SIZE) result = refuse();
    if (result == CUDA_SUCCESS) return result;
    copies_free(image->copies);
    *image = (struct image){0};
    return result;
}

static void add_weight(struct image *image, uint64_t bytes) {
    image->bytes = bytes > LARGEST_SIZE || image->bytes > LARGEST_SIZE ? UNKNOWN_WEIGHT : image->bytes + bytes;
}

static CUresult add_copy(struct image *image, const void *content, uint64_t size) {
    unsigned char *copy = new_copy(image, size);
    if (!copy) return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(copy, content, size);
    image->content = copy;
    add_weight(image, weight_of(copy, size));
    return CUDA_SUCCESS;
}

static CUresult add_fat(struct image *image, const unsigned char *content) {
    uint64_t size = fat_length(content);
    image->kept = true;
    bool stays = size >= ALWAYS_COPIED && lies_still(content, size);
    uint64_t bytes = stays ? fat_bytes(content, size) : UNKNOWN_WEIGHT;
    if (bytes > LARGEST_SIZE) return add_copy(image, content, size);
    image->content = content;
    add_weight(image, bytes);
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ wrappers */

/* One more fat binary, and where it is now; none if there is none. */
static CUresult add_wrapped(struct image *image, const unsigned char *binary, const unsigned char **at) {
    if (!binary) return CUDA_SUCCESS;
    CUresult result = is_fat(binary) ? add_fat(image, binary) : CUDA_ERROR_INVALID_IMAGE;
    *at = image->content;
    return image->bytes > LARGEST_SIZE ? CUDA_ERROR_INVALID_IMAGE : result;
}

/* The list of what it was linked from, up to a NULL: as it was read once. */
static CUresult add_list(struct image *image, struct wrapper *wrapper) {
    const unsigned char *const *told = wrapper->linked;
    uint64_t count = 0;
    while (count < MOST_LINKED && told[count]) count++;
    const unsigned char **list = (const unsigned char **)new_copy(image, (count + 1) * sizeof *list);
    CUresult result = list ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (uint64_t i = 0; result == CUDA_SUCCESS && i <= count; i++) {
        list[i] = NULL;
        if (i < count) result = add_wrapped(image, told[i], &list[i]);
    }
    wrapper->linked = list;
    return result;
}

/* One of our own, of what was weighed: a fat binary, and in its second version those that it was linked from. */
static CUresult wrapped_in_memory(struct image *image, const void *content) {
    struct wrapper wrapper;
    memcpy(&wrapper, content, sizeof wrapper);
    CUresult result = add_wrapped(image, wrapper.binary, &wrapper.binary);
    if (!result && wrapper.version == FAT_LINKED && wrapper.linked) result = add_list(image, &wrapper);
    unsigned char *copy = new_copy(image, sizeof wrapper);
    if (!copy) return CUDA_ERROR_OUT_OF_MEMORY;
    image->content = memcpy(copy, &wrapper, sizeof wrapper);
    return result;
}

/* ------------------------------------------------------------------ in memory and in files */

/* Text ends with a zero; of what is nothing that is known nobody knows where it ends. */
static bool is_text(const unsigned char *content) {
    return isprint(*content) || isspace(*content);
}

CUresult image_in_memory(struct image *image, const void *content) {
    *image = (struct image){0};
    if (!content) return CUDA_SUCCESS;
    if (is_cubin(content)) return done_with(image, add_copy(image, content, cubin_length(content)));
    if (is_wrapper(content)) return done_with(image, wrapped_in_memory(image, content));
    if (is_fat(content)) return done_with(image, add_fat(image, content));
    if (!is_text(content)) return refuse();
    return done_with(image, add_copy(image, content, strlen(content)));
}

/* As much of the file as there is, by then, of what it had. */
static CUresult read_image(struct image *image, int file, uint64_t size) {
    unsigned char *copy = new_copy(image, size);
    uint64_t done = 0;
    if (!copy) return CUDA_ERROR_OUT_OF_MEMORY;
    for (ssize_t got = 1; got > 0 && done < size; done += got > 0 ? (uint64_t)got : 0)
        got = read(file, copy + done, size - done);
    memset(copy + done, 0, size - done + PADDING);
    image->content = copy;
    image->bytes = weight_of(copy, done);
    return CUDA_SUCCESS;
}

CUresult image_in_file(struct image *image, const char *path) {
    struct stat seen;
    *image = (struct image){0};
    if (!path) return CUDA_ERROR_INVALID_VALUE;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return CUDA_ERROR_FILE_NOT_FOUND;
    CUresult result = CUDA_ERROR_FILE_NOT_FOUND;
    if (status_of_file(file, &seen) == 0) result = read_image(image, file, (uint64_t)seen.st_size);
    close(file);
    return done_with(image, result);
}
