/*
 * Between a broker process and its disk (LD_PRELOAD): writes down what is done below one directory, so that a power cut
 * can be made of it afterwards (image.py), fails operations as a full or broken disk does, delays them, kills the process
 * before a chosen operation, and changes the wall clock. Nothing happens before crash_attach() is called, in the child that becomes the broker.
 *
 * The journal is a sequence of records: struct record, first path, second path, data. control.py and image.py have the
 * same layouts. One lock is held over an operation and its record, so the journal has the order of the operations.
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { OPEN = 1, CLOSE, WRITE, TRUNCATE, SYNC, RENAME, LINK, UNLINK, MKDIR, RMDIR };
enum { K_WRITE = 1, K_SYNC = 2, K_CREATE = 4, K_NAME = 8, K_TRUNCATE = 16, K_READ = 32 };

struct record {
    uint32_t magic;
    uint8_t op, failed;
    uint16_t first, second, unused;
    int32_t fd;
    uint32_t flags;
    int64_t offset;
    uint64_t length;
} __attribute__((packed));

struct control {
    uint32_t operations;  /* done so far, reads not counted */
    uint32_t kill_at;     /* die before the operation of this number, 0: never */
    uint32_t kill_torn;   /* and where that is a write, write half of it first */
    uint32_t kinds;       /* what fails: K_... */
    uint32_t after;       /* so many that match still work */
    uint32_t count;       /* and so many fail after them */
    uint32_t error;       /* with this errno */
    uint32_t torn;        /* a write that fails with ENOSPC writes half first */
    uint32_t failed;      /* how many did */
    uint32_t slow;        /* what takes long: K_... */
    uint32_t slow_us;     /* so many microseconds, or until `slow` is 0 again */
    int32_t clock_s;      /* by so many seconds the wall clock is wrong */
    char path[92];        /* only in files with this in their names; empty: all */
};

#define FILES 65536
#define MAGIC 0x4c4a5243u

static char *directory;
static size_t directory_length;
static struct control *control;
static int journal = -1;
static char *names[FILES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int crash_attach(const char *below, const char *journal_path, const char *control_path) {
    int fd = syscall(SYS_openat, AT_FDCWD, control_path, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) return -1;
    void *memory = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (memory == MAP_FAILED) return -1;
    if (journal_path) {
        journal = syscall(SYS_openat, AT_FDCWD, journal_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (journal < 0) return -1;
    }
    control = memory;
    directory_length = strlen(below);
    directory = strdup(below);
    return 0;
}

static int is_ours(const char *path) {
    if (!directory || !path || strncmp(path, directory, directory_length)) return 0;
    if (path[directory_length] != '/' && path[directory_length]) return 0;
    size_t length = strlen(path);
    return length < 4 || strcmp(path + length - 4, "-shm"); /* shared memory of SQLite: nothing durable is in it */
}

static const char *name_of(int fd) { return directory && fd >= 0 && fd < FILES ? names[fd] : NULL; }

static void note(int op, int failed, int fd, int flags, int64_t offset, const char *first, const char *second,
                 const struct iovec *data, int count, uint64_t length) {
    if (journal < 0) return;
    struct record record = {MAGIC, op, failed, first ? strlen(first) : 0, second ? strlen(second) : 0, 0, fd, flags,
                            offset, length};
    struct iovec *parts = alloca(sizeof(struct iovec) * (count + 3));
    int used = 0;
    parts[used++] = (struct iovec){&record, sizeof record};
    if (first) parts[used++] = (struct iovec){(void *)first, record.first};
    if (second) parts[used++] = (struct iovec){(void *)second, record.second};
    for (int i = 0; i < count && length; i++) {
        size_t size = data[i].iov_len < length ? data[i].iov_len : length;
        parts[used++] = (struct iovec){data[i].iov_base, size};
        length -= size;
    }
    for (int at = 0; at < used; at += 512) {
        int batch = used - at < 512 ? used - at : 512;
        if (syscall(SYS_writev, journal, parts + at, batch) < 0) abort();
    }
}

/* Whether this operation is the process's last, and whether it fails. Under the lock. */
static int fate(int kind, const char *path) {
    if (kind != K_READ && ++control->operations == control->kill_at && !(control->kill_torn && kind == K_WRITE)) {
        syscall(SYS_kill, getpid(), SIGKILL);
        pause();
    }
    for (uint32_t waited = 0; (control->slow & kind) && waited < control->slow_us; waited += 1000) usleep(1000);
    if (!(control->kinds & kind) || (control->path[0] && !strstr(path, control->path))) return 0;
    if (control->after) {
        control->after--;
        return 0;
    }
    if (!control->count) return 0;
    control->count--;
    control->failed++;
    return control->error;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, id, now);
    if (!result && control && id == CLOCK_REALTIME) now->tv_sec += control->clock_s;
    return result;
}

#define FAIL(code) do { pthread_mutex_unlock(&lock); errno = (code); return -1; } while (0)

static int finish(long result) {
    int code = errno;
    pthread_mutex_unlock(&lock);
    errno = code;
    return result;
}

/* --- opening and closing ---------------------------------------------------------------------------------------- */

static int open_below(int at, const char *path, int flags, mode_t mode) {
    if (!is_ours(path)) {
        int fd = syscall(SYS_openat, at, path, flags, mode);
        if (fd >= 0 && fd < FILES && names[fd]) {
            free(names[fd]);
            names[fd] = NULL;
        }
        return fd;
    }
    pthread_mutex_lock(&lock);
    struct stat before;
    int makes = (flags & O_CREAT) && stat(path, &before);
    if (makes || (flags & O_TRUNC)) {
        int code = fate(K_CREATE, path);
        if (code) FAIL(code);
    }
    int fd = syscall(SYS_openat, at, path, flags, mode);
    if (fd >= FILES) abort();
    if (fd >= 0) {
        free(names[fd]);
        names[fd] = strdup(path);
        note(OPEN, 0, fd, (makes ? 1 : 0) | ((flags & O_TRUNC) ? 2 : 0), 0, path, NULL, NULL, 0, 0);
    }
    return finish(fd);
}

static mode_t mode_of(int flags, va_list more) { return (flags & (O_CREAT | O_TMPFILE)) ? va_arg(more, mode_t) : 0; }

#define OPENS(name)                                            \
    int name(const char *path, int flags, ...) {               \
        va_list more;                                          \
        va_start(more, flags);                                 \
        mode_t mode = mode_of(flags, more);                    \
        va_end(more);                                          \
        return open_below(AT_FDCWD, path, flags, mode);        \
    }
#define OPENS_AT(name)                                         \
    int name(int at, const char *path, int flags, ...) {       \
        va_list more;                                          \
        va_start(more, flags);                                 \
        mode_t mode = mode_of(flags, more);                    \
        va_end(more);                                          \
        return open_below(at, path, flags, mode);              \
    }
OPENS(open)
OPENS(open64)
OPENS_AT(openat)
OPENS_AT(openat64)

int close(int fd) {
    if (!name_of(fd)) return syscall(SYS_close, fd);
    pthread_mutex_lock(&lock);
    free(names[fd]);
    names[fd] = NULL;
    note(CLOSE, 0, fd, 0, 0, NULL, NULL, NULL, 0, 0);
    return finish(syscall(SYS_close, fd));
}

/* --- contents --------------------------------------------------------------------------------------------------- */

static ssize_t write_at(int fd, const struct iovec *data, int count, int64_t offset) {
    int positioned = offset >= 0;
    if (!name_of(fd))
        return positioned ? syscall(SYS_pwritev, fd, data, count, offset, 0) : syscall(SYS_writev, fd, data, count);
    pthread_mutex_lock(&lock);
    size_t length = 0;
    for (int i = 0; i < count; i++) length += data[i].iov_len;
    int code = fate(K_WRITE, names[fd]);
    int dies = control->operations == control->kill_at;
    int half = dies || (code == ENOSPC && control->torn);
    if (code && !(half && length > 1)) FAIL(code);
    if (!positioned) {
        int flags = fcntl(fd, F_GETFL);
        struct stat now;
        offset = (flags & O_APPEND) && !fstat(fd, &now) ? now.st_size : lseek(fd, 0, SEEK_CUR);
    }
    struct iovec *parts = alloca(sizeof(struct iovec) * (count ? count : 1));
    int used = 0;
    size_t left = half ? length / 2 : length;
    for (int i = 0; i < count && left; i++) {
        size_t size = data[i].iov_len < left ? data[i].iov_len : left;
        parts[used++] = (struct iovec){data[i].iov_base, size};
        left -= size;
    }
    ssize_t written = positioned ? syscall(SYS_pwritev, fd, parts, used, offset, 0) : syscall(SYS_writev, fd, parts, used);
    if (written > 0) note(WRITE, 0, fd, 0, offset, NULL, NULL, parts, used, written);
    if (dies) {
        syscall(SYS_kill, getpid(), SIGKILL);
        pause();
    }
    int failed = errno;
    pthread_mutex_unlock(&lock);
    errno = failed;
    return written;
}

ssize_t write(int fd, const void *data, size_t size) {
    if (!name_of(fd)) return syscall(SYS_write, fd, data, size);
    struct iovec part = {(void *)data, size};
    return write_at(fd, &part, 1, -1);
}
ssize_t writev(int fd, const struct iovec *data, int count) { return write_at(fd, data, count, -1); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    struct iovec part = {(void *)data, size};
    return write_at(fd, &part, 1, offset);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) { return pwrite(fd, data, size, offset); }
ssize_t pwritev(int fd, const struct iovec *data, int count, off_t offset) { return write_at(fd, data, count, offset); }
ssize_t pwritev64(int fd, const struct iovec *data, int count, off64_t offset) {
    return write_at(fd, data, count, offset);
}

/* Python's os.pwritev is this one, with no flags. */
ssize_t pwritev2(int fd, const struct iovec *data, int count, off_t offset, int flags) {
    if (!name_of(fd)) return syscall(SYS_pwritev2, fd, data, count, offset, 0, flags);
    return write_at(fd, data, count, offset);
}
ssize_t pwritev64v2(int fd, const struct iovec *data, int count, off64_t offset, int flags) {
    return pwritev2(fd, data, count, offset, flags);
}

static ssize_t read_at(int fd, void *data, size_t size, int64_t offset) {
    if (name_of(fd)) {
        pthread_mutex_lock(&lock);
        int code = fate(K_READ, names[fd]);
        if (code) FAIL(code);
        pthread_mutex_unlock(&lock);
    }
    return syscall(SYS_pread64, fd, data, size, offset);
}
ssize_t pread(int fd, void *data, size_t size, off_t offset) { return read_at(fd, data, size, offset); }
ssize_t pread64(int fd, void *data, size_t size, off64_t offset) { return read_at(fd, data, size, offset); }

ssize_t read(int fd, void *data, size_t size) {
    if (name_of(fd)) {
        pthread_mutex_lock(&lock);
        int code = fate(K_READ, names[fd]);
        if (code) FAIL(code);
        pthread_mutex_unlock(&lock);
    }
    return syscall(SYS_read, fd, data, size);
}

int ftruncate(int fd, off_t size) {
    if (!name_of(fd)) return syscall(SYS_ftruncate, fd, size);
    pthread_mutex_lock(&lock);
    int code = fate(K_TRUNCATE, names[fd]);
    if (code) FAIL(code);
    int result = syscall(SYS_ftruncate, fd, size);
    if (!result) note(TRUNCATE, 0, fd, 0, size, NULL, NULL, NULL, 0, 0);
    return finish(result);
}
int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

/* Ways to change a file that nobody uses today: whoever begins to, is told here, since a journal with holes is none. */
int posix_fallocate(int fd, off_t offset, off_t size) {
    if (name_of(fd)) abort();
    return syscall(SYS_fallocate, fd, 0, offset, size) ? errno : 0;
}
int posix_fallocate64(int fd, off64_t offset, off64_t size) { return posix_fallocate(fd, offset, size); }
int truncate(const char *path, off_t size) {
    if (is_ours(path)) abort();
    return syscall(SYS_truncate, path, size);
}
int truncate64(const char *path, off64_t size) { return truncate(path, size); }
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags) {
    if (name_of(out)) abort();
    return syscall(SYS_copy_file_range, in, from, out, to, size, flags);
}

static int sync_file(int fd, long call) {
    if (!name_of(fd)) return syscall(call, fd);
    pthread_mutex_lock(&lock);
    int code = fate(K_SYNC, names[fd]);
    note(SYNC, code != 0, fd, 0, 0, NULL, NULL, NULL, 0, 0);
    if (code) FAIL(code);
    return finish(0); /* the machine's disk has no part in this: what is durable is what the journal says */
}
int fsync(int fd) { return sync_file(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_file(fd, SYS_fdatasync); }

/* --- names ------------------------------------------------------------------------------------------------------ */

static int name_change(int op, int kind, const char *first, const char *second, int flags) {
    pthread_mutex_lock(&lock);
    int code = fate(kind, first);
    if (code) FAIL(code);
    long result;
    switch (op) {
    case RENAME: result = syscall(SYS_renameat2, AT_FDCWD, first, AT_FDCWD, second, 0); break;
    case LINK: result = syscall(SYS_linkat, AT_FDCWD, first, AT_FDCWD, second, 0); break;
    case MKDIR: result = syscall(SYS_mkdirat, AT_FDCWD, first, flags); break;
    default: result = syscall(SYS_unlinkat, AT_FDCWD, first, op == RMDIR ? AT_REMOVEDIR : 0);
    }
    if (!result) note(op, 0, -1, 0, 0, first, second, NULL, 0, 0);
    return finish(result);
}

int rename(const char *from, const char *to) {
    if (!is_ours(from)) return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    return name_change(RENAME, K_NAME, from, to, 0);
}
int renameat(int at, const char *from, int to_at, const char *to) {
    if (!is_ours(from)) return syscall(SYS_renameat2, at, from, to_at, to, 0);
    return name_change(RENAME, K_NAME, from, to, 0);
}
int link(const char *from, const char *to) {
    if (!is_ours(to)) return syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
    return name_change(LINK, K_NAME, from, to, 0);
}
int linkat(int at, const char *from, int to_at, const char *to, int flags) {
    if (!is_ours(to)) return syscall(SYS_linkat, at, from, to_at, to, flags);
    return name_change(LINK, K_NAME, from, to, 0);
}
/* A full disk still removes files, so these fail only where the disk is broken: K_TRUNCATE, like making a file smaller. */
int unlink(const char *path) {
    if (!is_ours(path)) return syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    return name_change(UNLINK, K_TRUNCATE, path, NULL, 0);
}
int rmdir(const char *path) {
    if (!is_ours(path)) return syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
    return name_change(RMDIR, K_TRUNCATE, path, NULL, 0);
}
int unlinkat(int at, const char *path, int flags) {
    if (!is_ours(path)) return syscall(SYS_unlinkat, at, path, flags);
    return name_change((flags & AT_REMOVEDIR) ? RMDIR : UNLINK, K_TRUNCATE, path, NULL, 0);
}
int mkdir(const char *path, mode_t mode) {
    if (!is_ours(path)) return syscall(SYS_mkdirat, AT_FDCWD, path, mode);
    return name_change(MKDIR, K_NAME, path, NULL, mode);
}
int mkdirat(int at, const char *path, mode_t mode) {
    if (!is_ours(path)) return syscall(SYS_mkdirat, at, path, mode);
    return name_change(MKDIR, K_NAME, path, NULL, mode);
}
