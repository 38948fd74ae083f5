/* What processes share, and what they send each other. */
#include "tenant.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

void export_first(bool of_pool) {
    CUipcMemHandle handle = {0};
    CUresult result = of_pool ? CU(cuMemPoolExportPointer)(&handle, held[0].value)
                              : CU(cuIpcGetMemHandle)(&handle, held[0].value);
    printf("%d ", result);
    for (int i = 0; i < 64; i++) printf("%02x", handle.bytes[i]);
    puts("");
}

void import(const char *text, bool of_pool, bool old) {
    CUipcMemHandle handle;
    CUdeviceptr address = 0;
    for (int i = 0; i < 64; i++) sscanf(text + 2 * i, "%2hhx", &handle.bytes[i]);
    CUresult result = of_pool ? CU(cuMemPoolImportPointer)(&address, NULL, &handle)
                    : old   ? CU(cuIpcOpenMemHandle)(&address, handle, 1)
                            : CU(cuIpcOpenMemHandle_v2)(&address, handle, 1);
    printf("%d %llu\n", result, address);
}

void export_handle(void) {
    int file = -1;
    CUresult result = CU(cuMemExportToShareableHandle)(&file, held[0].value, 1, 0);
    printf("%d /proc/%d/fd/%d\n", result, getpid(), file);
}

static int way_through[2] = {-1, -1};

/* Close the first one's descriptor while a copy of it is on its way to somebody who may never read it. */
void send_descriptor(void) {
    char byte = 0, room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec content = {&byte, 1};
    struct msghdr message = {.msg_iov = &content, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    *(int *)(void *)CMSG_DATA(head) = (int)held[0].value;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, way_through) || sendmsg(way_through[0], &message, 0) != 1) exit(3);
    printf("%d\n", give(0));
}

void close_way(void) {
    printf("%d\n", close(way_through[0]) + close(way_through[1]));
}

void import_handle(const char *path) {
    CUhandle handle = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    printf("%d\n", CU(cuMemImportFromShareableHandle)(&handle, (void *)(intptr_t)file, 1));
}

/* What the child says is passed on once it has ended: whoever has read it may look for what is left of it. */
void do_fork(const char *name, uint64_t bytes) {
    int way[2];
    if (pipe(way) != 0) return;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(way[1], STDOUT_FILENO);
        held_count = 0;
        printf("%d ", start());
        fill(name, bytes);
        fflush(stdout);
        _exit(0);
    }
    close(way[1]);
    char said[256];
    FILE *from = fdopen(way[0], "r");
    size_t length = fread(said, 1, sizeof said, from);
    fclose(from);
    waitpid(child, NULL, 0);
    fwrite(said, 1, length, stdout);
}
