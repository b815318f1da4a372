/* role_child.h - the engine role in a child process, at the end of a socket. */
#pragma once

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../unit.h"
#include "engine/engine.h"
#include "proto/frame.h"

static struct {
    int fd;
    pid_t pid;
    struct frame_in in;
    struct buf b;
    uint32_t request;
} child;

static inline void child_start(void)
{
    int fd[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    child.pid = fork();
    assert_true(child.pid >= 0);
    if (child.pid == 0) {
        char name[] = "engine";
        char *argv[] = {name, NULL};
        (void)close(fd[0]);
        if (fd[1] != 3) {
            (void)dup2(fd[1], 3);
            (void)close(fd[1]);
        }
        _exit(engine_role(1, argv));
    }
    (void)close(fd[1]);
    child.fd = fd[0];
    frame_in_init(&child.in, FRAME_ENGINE_MAX);
    buf_init(&child.b, FRAME_ENGINE_MAX);
}

/* Wait for the end; the exit code. */
static inline int child_finish(void)
{
    int status = 0;
    assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
    assert_true(WIFEXITED(status));
    (void)close(child.fd);
    frame_in_fini(&child.in);
    buf_fini(&child.b);
    return WEXITSTATUS(status);
}

/* child.b goes out as the payload. */
static inline void child_send(enum frame_type type, uint32_t request)
{
    struct err e;
    unit_ok(frame_write_fd(child.fd, type, request, child.b.p, child.b.n, &e),
            &e);
    buf_clear(&child.b);
}
