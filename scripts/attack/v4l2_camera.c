/* A camera as Video4Linux2 shows one, in a library that is loaded before libc: see scripts/attack/v4l2_camera.py.
 *
 * Whoever opens the file named by FAKE_CAMERA gets a timer that becomes readable 30 times a second; the calls that
 * follow on it are answered here. It has YUYV pictures of three sizes, one user at a time, and stamps 7 ms before
 * a picture is handed out. The first letter of the file named by FAKE_CAMERA_MODE says how it is:
 *
 *     g  good     s  gives nothing     f  the same picture again     w  stamps of the wall clock     u  unplugged
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/videodev2.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { FDS = 1024, BUFFERS = 32, SIZES = 3, OFFSET = 0x1000000, PERIOD_NS = 33333333, LATE_US = 7000 };
static const int WIDTH[SIZES] = {320, 640, 1280}, HEIGHT[SIZES] = {240, 480, 720};

static int is_ours[FDS], user = -1, size = 1, num_buffers, is_queued[BUFFERS];
static uint8_t *memory[BUFFERS];
static uint64_t noise = 1;

static int fails(int error) {
    errno = error;
    return -1;
}

static int ours(int fd) { return fd >= 0 && fd < FDS && is_ours[fd]; }

static char mode(void) {
    FILE *file = fopen(getenv("FAKE_CAMERA_MODE"), "r");
    int letter = file ? fgetc(file) : 'g';
    if (file) fclose(file);
    return letter == EOF ? 'g' : letter;
}

static int opened(void) {
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct itimerspec each = {{0, PERIOD_NS}, {0, PERIOD_NS}};
    timerfd_settime(fd, 0, &each, NULL);
    is_ours[fd] = 1;
    return fd;
}

#define OPEN(name)                                                           \
    int name(const char *path, int flags, ...) {                             \
        va_list rest;                                                        \
        va_start(rest, flags);                                               \
        mode_t rights = va_arg(rest, int);                                   \
        va_end(rest);                                                        \
        if (getenv("FAKE_CAMERA") && !strcmp(path, getenv("FAKE_CAMERA"))) { \
            return mode() == 'u' ? fails(ENODEV) : opened();                 \
        }                                                                    \
        int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, #name);       \
        return real(path, flags, rights);                                    \
    }
OPEN(open)
OPEN(open64)

int close(int fd) {
    if (ours(fd)) {
        is_ours[fd] = 0;
        if (user == fd) user = -1;
    }
    int (*real)(int) = dlsym(RTLD_NEXT, "close");
    return real(fd);
}

static void *mapped(void *at, size_t length, int rights, int flags, int fd, off_t offset) {
    void *(*real)(void *, size_t, int, int, int, off_t) = dlsym(RTLD_NEXT, "mmap");
    if (!ours(fd)) return real(at, length, rights, flags, fd, offset);
    void *found = real(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory[offset / OFFSET] = found;
}
void *mmap(void *at, size_t n, int r, int f, int fd, off_t o) { return mapped(at, n, r, f, fd, o); }
void *mmap64(void *at, size_t n, int r, int f, int fd, off_t o) { return mapped(at, n, r, f, fd, o); }

static void show(uint8_t *pixels, size_t length) { /* red, and a sensor's noise */
    for (size_t k = 0; k < length; k += 2) {
        noise ^= noise << 13, noise ^= noise >> 7, noise ^= noise << 17;
        pixels[k] = 120 + (noise & 7);
        pixels[k + 1] = k / 2 % 2 ? 200 : 100;
    }
}

static int hand_out(int fd, struct v4l2_buffer *buffer) {
    uint64_t count;
    struct timespec now;
    char how = mode();
    if (read(fd, &count, sizeof count) != sizeof count || how == 's') return fails(EAGAIN);
    for (int i = 0; i < num_buffers; i++) {
        if (!is_queued[i]) continue;
        is_queued[i] = 0;
        static uint8_t last[2 * 1280 * 720];
        buffer->index = i;
        buffer->length = buffer->bytesused = 2 * WIDTH[size] * HEIGHT[size];
        if (how != 'f') show(last, buffer->length);
        memcpy(memory[i], last, buffer->length);
        clock_gettime(how == 'w' ? CLOCK_REALTIME : CLOCK_MONOTONIC, &now);
        int64_t us = now.tv_sec * 1000000LL + now.tv_nsec / 1000 - LATE_US;
        buffer->timestamp.tv_sec = us / 1000000;
        buffer->timestamp.tv_usec = us % 1000000;
        buffer->flags = V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC;
        return 0;
    }
    return fails(EAGAIN);
}

static int format(int fd, struct v4l2_format *told, int is_set) {
    if (is_set && user >= 0 && user != fd) return fails(EBUSY);
    for (int i = 0; is_set && i < SIZES; i++) {
        if (i == 0 || abs(WIDTH[i] - (int)told->fmt.pix.width) < abs(WIDTH[size] - (int)told->fmt.pix.width)) size = i;
    }
    told->fmt.pix.width = WIDTH[size], told->fmt.pix.height = HEIGHT[size];
    told->fmt.pix.pixelformat = V4L2_PIX_FMT_YUYV, told->fmt.pix.field = V4L2_FIELD_NONE;
    told->fmt.pix.bytesperline = 2 * WIDTH[size], told->fmt.pix.sizeimage = 2 * WIDTH[size] * HEIGHT[size];
    return 0;
}

static int answered(int fd, unsigned request, void *argument) {
    struct v4l2_capability *has = argument;
    struct v4l2_fmtdesc *kind = argument;
    struct v4l2_frmsizeenum *one = argument;
    struct v4l2_streamparm *rate = argument;
    struct v4l2_requestbuffers *asked = argument;
    struct v4l2_buffer *buffer = argument;
    switch (request) {
        case VIDIOC_QUERYCAP:
            memset(has, 0, sizeof *has);
            has->capabilities = V4L2_CAP_VIDEO_CAPTURE | V4L2_CAP_STREAMING;
            return 0;
        case VIDIOC_G_INPUT: return *(int *)argument = 0;
        case VIDIOC_S_INPUT: case VIDIOC_STREAMON: case VIDIOC_STREAMOFF: return 0;
        case VIDIOC_ENUMINPUT: return ((struct v4l2_input *)argument)->index ? fails(EINVAL) : 0;
        case VIDIOC_ENUM_FMT:
            kind->pixelformat = V4L2_PIX_FMT_YUYV;
            return kind->index ? fails(EINVAL) : 0;
        case VIDIOC_ENUM_FRAMESIZES:
            if (one->index >= SIZES) return fails(EINVAL);
            one->type = V4L2_FRMSIZE_TYPE_DISCRETE;
            one->discrete.width = WIDTH[one->index], one->discrete.height = HEIGHT[one->index];
            return 0;
        case VIDIOC_G_FMT: return format(fd, argument, 0);
        case VIDIOC_S_FMT: return format(fd, argument, 1);
        case VIDIOC_G_PARM: case VIDIOC_S_PARM:
            rate->parm.capture.timeperframe.numerator = 1, rate->parm.capture.timeperframe.denominator = 30;
            return 0;
        case VIDIOC_REQBUFS:
            if (user >= 0 && user != fd) return fails(EBUSY);
            user = asked->count ? fd : -1;
            num_buffers = asked->count;
            memset(is_queued, 0, sizeof is_queued);
            return 0;
        case VIDIOC_QUERYBUF:
            buffer->length = 2 * WIDTH[size] * HEIGHT[size], buffer->m.offset = buffer->index * OFFSET;
            return 0;
        case VIDIOC_QBUF: return (is_queued[buffer->index] = 1) - 1;
        case VIDIOC_DQBUF: return hand_out(fd, buffer);
        default: return fails(EINVAL);
    }
}

int ioctl(int fd, unsigned long request, ...) {
    va_list rest;
    va_start(rest, request);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    if (ours(fd)) return mode() == 'u' ? fails(ENODEV) : answered(fd, request, argument);
    int (*real)(int, unsigned long, ...) = dlsym(RTLD_NEXT, "ioctl");
    return real(fd, request, argument);
}
