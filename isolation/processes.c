#include "processes.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Words of /proc/PID/stat after the name's closing parenthesis, counted from 1. */
enum { STATE = 1, THREADS = 18, STARTED = 20 };

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

uint64_t process_born(uint32_t pid, bool *ended) {
    char path[32], text[1024];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    *ended = true;
    if (read_all(path, text, sizeof text) <= 0) return 0;
    const char *words = strrchr(text, ')');
    if (!words || words[1] != ' ') return 0;
    words += 2;
    const char *threads = word_of(words, THREADS), *started = word_of(words, STARTED);
    if (!threads || !started) return 0;
    /* A first thread that has ended stays as a zombie while others of its process run on. */
    *ended = (*words == 'Z' || *words == 'X') && strtol(threads, NULL, 10) <= 1;
    return strtoull(started, NULL, 10);
}

uint32_t process_namespace(void) {
    struct stat seen;
    return status_of_path("/proc/self/ns/pid", &seen) == 0 ? (uint32_t)seen.st_ino : 0;
}

bool process_maps(uint32_t pid, const struct stat *file) {
    char path[32], line[512], wanted[64];
    snprintf(path, sizeof path, "/proc/%u/maps", pid);
    FILE *maps = fopen(path, "re");
    if (!maps) return true;
    snprintf(wanted, sizeof wanted, " %02x:%02x %llu ", major(file->st_dev), minor(file->st_dev),
             (unsigned long long)file->st_ino);
    bool found = false, any = false;
    while (!found && fgets(line, sizeof line, maps)) {
        any = true;
        found = strstr(line, wanted) != NULL;
    }
    fclose(maps);
    /* A process that is ending has no maps left while the driver still frees what it had. */
    return found || !any;
}
