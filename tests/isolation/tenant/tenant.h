/* What the parts of the tenant know of each other: each takes memory or GPU time in some ways, or does what a program
 * would that tries to have more. */
#pragma once
#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../gpu/calling.h"
#include "../fake_cuda/fat.h"
#include "copies.h"

struct way {
    const char *name;
    CUresult (*take)(struct held *h, uint64_t bytes), (*give)(struct held *h);
};
extern const struct way ways[];

typedef CUresult taking(struct held *h, uint64_t bytes);
typedef CUresult giving(struct held *h);

/* A cubin whose variables have no content in the file: small to carry, large to load. */
struct cubin { Elf64_Ehdr head; Elf64_Shdr section[2]; };

/* A fat binary around a cubin, as it is or packed. */
struct fat_cubin {
    struct fat fat;
    _Alignas(8) unsigned char content[256];
};

/* What it takes stands in one word, so that a thread can change it at once. */
#define TEXT_FORMAT "//     \n.version 8.0\n.visible .global .align 4 .b8 held[%8llu00];\n"
#define TEXT_SIZE 56

/* memory.c */
taking take_managed, take_pitched, take_async, take_async_thread, take_pool, take_pool_thread, take_orphan, take_array,
    take_array3d, take_mipmap, take_external, take_context, take_context_three, take_context_four,
    take_context_attached, take_heap, take_stack;
giving give_linear, give_async, give_pool_thread, give_pool, give_array, give_mipmap, give_external, give_context,
    give_context_attached;
void make_green(void);
void fill_elsewhere(uint64_t bytes);
void end_green(void);

/* managed.c */
void place_block(const char *how, uint64_t number, uint64_t from, uint64_t bytes, int gpu);
void place_by_streams(uint64_t bytes, bool ended);
void place_by_stream(uint64_t bytes);
void place_in_passing(uint64_t bytes);
void place_beside(uint64_t bytes);
void end_while_placed(uint64_t bytes);
void place_by_green(const char *how, uint64_t bytes);
void go_on_while_ending(const char *what, uint64_t bytes);
void replace_while_placed(uint64_t bytes);
void take_behind_placed(uint64_t bytes);
void be_on(int gpu);
void fill_second(uint64_t bytes);

/* wild.c */
void be_wild(uint64_t seed, uint64_t steps, int gpus);

/* handles.c */
taking take_handle, take_mapped, take_exported, take_exported_closed, take_sparse, take_multicast,
    take_multicast_address, take_sparse_thread, take_multicast_two, take_multicast_address_two, take_unbindable,
    take_unbindable_address;
giving give_handle, give_mapped, give_exported, give_unbound, give_nothing;
uint64_t whole(uint64_t bytes);
void unbind_too_late(uint64_t bytes);

/* places.c */
void fill_at(const char *what, int type, int id, uint64_t bytes);
void end_pool(void);

/* code.c */
taking take_module, take_numbered, take_segment, take_wrapped, take_packed, take_packed_zstd, take_linked,
    take_disguised, take_foreign,    take_fat_mapped, take_fat, take_file, take_library_file, take_library;
giving give_module, give_library;
const struct cubin *cubin(uint64_t bytes);
struct fat_cubin fat_cubin(uint64_t bytes, unsigned packing);
int cubin_file(uint64_t bytes, char path[32]);

/* text.c */
taking take_text, take_text_hex, take_text_vectors, take_text_managed, take_text_remark, take_text_dots, take_text_percent, take_text_fat;
void write_text(char text[96], uint64_t bytes);
void load_unread(void);

/* tables.c */
taking take_private, take_private_with, take_private_bare, take_context_private;
void get_primary(void);
void ask_for_tables(void);

/* graphs.c */
taking take_graph, take_graph_thread, take_graph_upload, take_graph_upload_thread, take_graph_made,
    take_graph_made_thread;
giving give_graph;
void fill_two(uint64_t first, uint64_t second);

/* graph_runs.c: whether the line is one of its commands. */
bool obey_of_graphs(const char *line);

/* waiters.c */
bool sleeps(pid_t thread);

/* ways.c */
CUresult take(int way, uint64_t bytes);
CUresult give(int index);
int way_of(const char *name);
void fill(const char *name, uint64_t bytes);
CUresult start(void);
void churn(unsigned long long from, unsigned long long steps);
void empty(void);

/* launches.c */
void tell_clock(void);
void tell_whose(const char *how);
void use(double seconds, const char *how, unsigned microseconds, int batch, unsigned idle);
void crowd(int count, double seconds, unsigned micros);
void astray(const char *how, double seconds, unsigned micros);
void sneak(const char *how, double seconds, unsigned milliseconds);
void capture(int count);
void serve(double seconds, unsigned microseconds, int batch, unsigned idle);

/* sharing.c */
void export_first(bool of_pool);
void import(const char *text, bool of_pool, bool old);
void export_handle(void);
void send_descriptor(void);
void close_way(void);
void import_handle(const char *path);
void do_fork(const char *name, uint64_t bytes);

/* races.c */
void race(const char *name, uint64_t bytes);
void meet_in_granule(uint64_t charged, uint64_t squeezed);
void take_where_freed(uint64_t bytes);
void place_while_freed(uint64_t bytes);
void release_while_mapped(uint64_t bytes);
void take_while_mapping_waits(uint64_t bytes);
void replace_context(uint64_t bytes);
void bind_while_replaced(const char *how, uint64_t bytes);
void raise_while_lowered(uint64_t bytes);

/* stops.c */
void meet_at_step(unsigned step, uint64_t charged, uint64_t squeezed, uint64_t more);

/* changes.c */
void take_while_changed(const char *name, uint64_t bytes, uint64_t times);

/* swaps.c */
void take_with_answer_swapped(const char *name, uint64_t bytes, int times);
void swap_while_mapped(bool threads, uint64_t bytes);
