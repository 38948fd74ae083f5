/* Reads the state file. A line that can't be understood makes the whole file unbelievable: a test that misspells a
 * word must not get a GPU with half its facts. */
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool word(const char *line, const char *key, char *into, size_t size) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, " %s=", key);
    const char *at = strstr(line, wanted);
    if (!at) return false;
    at += strlen(wanted);
    size_t length = strcmp(key, "name") == 0 ? strcspn(at, "\n") : strcspn(at, " \n");
    if (length >= size) return false;
    memcpy(into, at, length);
    into[length] = '\0';
    return true;
}

static bool number(const char *line, const char *key, long long *into) {
    char text[64], *end;
    if (!word(line, key, text, sizeof text) || !*text) return false;
    *into = strtoll(text, &end, 0);
    return *end == '\0';
}

#define NUMBER(key, field) do { long long n; if (!number(line, key, &n)) return false; (field) = n; } while (0)

static bool parse_gpu(const char *line, struct state *s) {
    if (s->gpus == MAX_GPUS) return false;
    struct gpu *g = &s->gpu[s->gpus++];
    char cc[16];
    if (sscanf(line, "gpu %95s", g->uuid) != 1 || !word(line, "name", g->name, sizeof g->name)) return false;
    if (!word(line, "pci", g->pci, sizeof g->pci) || !word(line, "cc", cc, sizeof cc)) return false;
    if (sscanf(cc, "%d.%d", &g->major_cc, &g->minor_cc) != 2) return false;
    NUMBER("minor", g->minor);
    NUMBER("total", g->total);
    NUMBER("reserved", g->reserved);
    NUMBER("arch", g->arch);
    NUMBER("numa", g->numa);
    NUMBER("mig", g->mig);
    NUMBER("mig-wanted", g->mig_wanted);
    NUMBER("slices", g->slices);
    NUMBER("switch", g->switch_links);
    NUMBER("lost", g->lost);
    NUMBER("temperature", g->temperature);
    NUMBER("power", g->power);
    NUMBER("util", g->util);
    NUMBER("throttle", g->throttle);
    NUMBER("events", g->events);
    return true;
}

static bool parse_instance(const char *line, struct state *s) {
    if (s->instances == MAX_INSTANCES) return false;
    struct instance *i = &s->instance[s->instances++];
    if (sscanf(line, "instance %d %95s", &i->gpu, i->uuid) != 2 || !word(line, "name", i->name, sizeof i->name)) return false;
    NUMBER("slot", i->slot);
    NUMBER("gi", i->gi);
    NUMBER("ci", i->ci);
    NUMBER("slices", i->slices);
    NUMBER("used", i->used_slices);
    NUMBER("total", i->total);
    NUMBER("reserved", i->reserved);
    return true;
}

static bool parse_link(const char *line, struct state *s) {
    if (s->links == MAX_LINKS) return false;
    struct link *l = &s->link[s->links++];
    if (sscanf(line, "link %d %d", &l->a, &l->b) != 2) return false;
    NUMBER("nvlink", l->nvlinks);
    NUMBER("topology", l->topology);
    return true;
}

static bool parse_process(const char *line, struct state *s) {
    if (s->processes == MAX_PROCESSES) return false;
    struct process *p = &s->process[s->processes++];
    char kind[16], memory[32];
    if (sscanf(line, "process %d", &p->gpu) != 1 || !word(line, "kind", kind, sizeof kind)) return false;
    if (!word(line, "memory", memory, sizeof memory)) return false;
    p->memory = strcmp(memory, "hidden") == 0 ? ~0ULL : strtoull(memory, NULL, 10);
    p->kind = strcmp(kind, "graphics") == 0 ? GRAPHICS : strcmp(kind, "mps") == 0 ? MPS : COMPUTE;
    NUMBER("instance", p->instance);
    NUMBER("pid", p->pid);
    NUMBER("sm", p->sm);
    NUMBER("at", p->at);
    return true;
}

static bool parse_event(const char *line, struct state *s) {
    if (s->events == MAX_EVENTS) return false;
    struct event *e = &s->event[s->events++];
    if (sscanf(line, "event %llu", &e->number) != 1) return false;
    NUMBER("gpu", e->gpu);
    NUMBER("type", e->type);
    NUMBER("data", e->data);
    return true;
}

static bool parse_rule(const char *line, struct state *s, bool slow) {
    if (s->rules == MAX_RULES) return false;
    struct rule *r = &s->rule[s->rules++];
    char gpu[16];
    r->slow = slow;
    if (sscanf(line, "%*s %95s %15s %ld", r->function, gpu, &r->value) != 3) return false;
    r->gpu = strcmp(gpu, "*") == 0 ? ANY_GPU : atoi(gpu);
    return true;
}

static bool parse_line(const char *line, struct state *s) {
    if (strncmp(line, "gpu ", 4) == 0) return parse_gpu(line, s);
    if (strncmp(line, "instance ", 9) == 0) return parse_instance(line, s);
    if (strncmp(line, "link ", 5) == 0) return parse_link(line, s);
    if (strncmp(line, "process ", 8) == 0) return parse_process(line, s);
    if (strncmp(line, "event ", 6) == 0) return parse_event(line, s);
    if (strncmp(line, "fault ", 6) == 0) return parse_rule(line, s, false);
    if (strncmp(line, "slow ", 5) == 0) return parse_rule(line, s, true);
    if (sscanf(line, "driver %95s", s->driver) == 1 || sscanf(line, "nvml %95s", s->nvml) == 1) return true;
    if (sscanf(line, "cuda %d", &s->cuda) == 1 || sscanf(line, "init %d", &s->init) == 1) return true;
    return sscanf(line, "used-includes-reserved %d", &s->used_includes_reserved) == 1;
}

static bool parse(FILE *file, struct state *s) {
    char line[512];
    if (!fgets(line, sizeof line, file) || strcmp(line, "fake-nvml 1\n") != 0) return false;
    while (fgets(line, sizeof line, file)) {
        if (strcmp(line, "end\n") == 0) return true;
        if (!parse_line(line, s)) {
            fprintf(stderr, "fake NVML: a state line it does not understand: %s", line);
            return false;
        }
    }
    return false;
}

bool state_refresh(const char *path, struct state *state) {
    static struct stat seen;
    struct stat now;
    if (!path || stat(path, &now) != 0) return false;
    bool same = now.st_ino == seen.st_ino && now.st_size == seen.st_size &&
                now.st_mtim.tv_sec == seen.st_mtim.tv_sec && now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec;
    if (same) return true;
    FILE *file = fopen(path, "re");
    if (!file) return false;
    struct state *fresh = calloc(1, sizeof *fresh);
    bool whole = fresh && parse(file, fresh);
    fclose(file);
    if (whole) {
        *state = *fresh;
        seen = now;
    }
    free(fresh);
    return whole;
}

const struct rule *state_rule(const struct state *state, bool slow, const char *function, int gpu) {
    for (int i = 0; i < state->rules; i++) {
        const struct rule *r = &state->rule[i];
        bool named = strcmp(r->function, "*") == 0 || strcmp(r->function, function) == 0;
        if (r->slow == slow && named && (r->gpu == ANY_GPU || r->gpu == gpu)) return r;
    }
    return NULL;
}
