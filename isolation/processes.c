#include "processes.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Words of /proc/PID/stat after the name's closing parenthesis, counted from 1. */
enum { FLAGS = 7, THREADS = 18, STARTED = 20 };
#define EXITING 4UL /* the kernel's PF_EXITING */

static ssize_t read_all(const char *path, char *into, size_t size) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return -1;
    ssize_t got = read(file, into, size - 1);
    close(file);
    if (got >= 0) into[got] = '\0';
    return got;
}

static const char *word_of(const char *text, int number) {
    while (text && --number) {
        text = strchr(text, ' ');
        if (text) text++;
    }
    return text;
}

/* What stands in a file `stat` after the process's name, in `text`; NULL if there is no such process. */
static const char *words_in(const char *path, char *text, size_t size) {
    if (read_all(path, text, size) <= 0) return NULL;
    const char *words = strrchr(text, ')');
    return words && words[1] == ' ' ? words + 2 : NULL;
}

static const char *words_of(uint32_t pid, char *text, size_t size) {
    char path[32];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    return words_in(path, text, size);
}

uint64_t process_own_born(void) {
    char text[1024];
    const char *started = word_of(words_in("/proc/self/stat", text, sizeof text), STARTED);
    return started ? strtoull(started, NULL, 10) : 0;
}

uint64_t process_born(uint32_t pid, bool *ended) {
    char text[1024];
    const char *words = words_of(pid, text, sizeof text);
    const char *threads = word_of(words, THREADS), *started = word_of(words, STARTED);
    *ended = true;
    if (!threads || !started) return 0;
    /* A first thread that has ended stays as a zombie while others of its process run on. */
    *ended = (*words == 'Z' || *words == 'X') && strtol(threads, NULL, 10) <= 1;
    return strtoull(started, NULL, 10);
}

static bool is_exiting(uint32_t pid) {
    char text[1024];
    const char *flags = word_of(words_of(pid, text, sizeof text), FLAGS);
    return flags && strtoul(flags, NULL, 10) & EXITING;
}

uint32_t process_namespace(void) {
    struct stat seen;
    return status_of_path("/proc/self/ns/pid", &seen) == 0 ? (uint32_t)seen.st_ino : 0;
}

/* Our numbers, from that in the namespace which /proc is of to that in our own: where both are one, it is one number. */
uint32_t process_namespace_seen(void) {
    char text[4096];
    if (read_all("/proc/self/status", text, sizeof text) <= 0) return 0;
    const char *numbers = strstr(text, "\nNSpid:\t");
    if (!numbers) return 0;
    numbers += strlen("\nNSpid:\t");
    return numbers[strcspn(numbers, "\t\n")] == '\n' ? process_namespace() : 0;
}

bool process_maps(uint32_t pid, const struct stat *file) {
    char path[32], line[512], wanted[64];
    snprintf(path, sizeof path, "/proc/%u/maps", pid);
    FILE *maps = fopen(path, "re");
    if (!maps) return true;
    snprintf(wanted, sizeof wanted, " %02x:%02x %llu ", major(file->st_dev), minor(file->st_dev),
             (unsigned long long)file->st_ino);
    bool found = false;
    while (!found && fgets(line, sizeof line, maps)) found = strstr(line, wanted) != NULL;
    fclose(maps);
    /* A process that ends loses its maps, maybe while they were read, before the driver has freed what it had. */
    return found || is_exiting(pid);
}
