"""C threads that call fdatasync and never take the interpreter, for `flush.mode=ack` beside a busy loop.

A Python thread takes the GIL to fetch its job, around each call and to return the result, and beside a busy loop it
waits up to 5 ms each time. These threads share two lists with the loop, of wanted and of finished jobs, and ring an
eventfd that the loop watches. They touch C memory only: a job's Python objects stay with the loop.

Only for Linux, and only where a compiler was; `LoopRuntime.sync_files` is None elsewhere (decision 0045).
"""

import os

from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.errno cimport EINTR, errno
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free
from posix.unistd cimport close, fdatasync, getpid, read, write

cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd(unsigned int count, int flags)
    int EFD_CLOEXEC, EFD_NONBLOCK

cdef extern from "<signal.h>" nogil:
    ctypedef struct sigset_t:
        pass
    int SIG_SETMASK
    int sigfillset(sigset_t *signals)
    int pthread_sigmask(int how, const sigset_t *signals, sigset_t *before)

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_t:
        pass
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_create(pthread_t *thread, void *attributes, void *(*start)(void *) noexcept nogil, void *argument)
    int pthread_join(pthread_t thread, void **result)
    int pthread_mutex_init(pthread_mutex_t *mutex, void *attributes)
    int pthread_mutex_lock(pthread_mutex_t *mutex)
    int pthread_mutex_unlock(pthread_mutex_t *mutex)
    int pthread_mutex_destroy(pthread_mutex_t *mutex)
    int pthread_cond_init(pthread_cond_t *condition, void *attributes)
    int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
    int pthread_cond_signal(pthread_cond_t *condition)
    int pthread_cond_broadcast(pthread_cond_t *condition)
    int pthread_cond_destroy(pthread_cond_t *condition)

cdef enum:
    THREADS_ROOM = 64


cdef struct Job:
    Job *next
    PyObject *done
    int error
    int count
    int fds[1]  # as many as `count`


cdef struct Queue:
    Job *first
    Job *last


cdef struct Shared:
    pthread_mutex_t lock
    pthread_cond_t wanted
    Queue waiting
    Queue finished
    int bell
    bint is_closing


cdef inline void put(Queue *queue, Job *job) noexcept nogil:
    job.next = NULL
    if queue.first == NULL:
        queue.first = job
    else:
        queue.last.next = job
    queue.last = job


cdef inline Job *take(Queue *queue) noexcept nogil:
    cdef Job *job = queue.first
    if job != NULL:
        queue.first = job.next
    return job


cdef inline void ring(Shared *shared) noexcept nogil:
    cdef uint64_t one = 1
    write(shared.bell, &one, sizeof(one))


cdef int sync_all(Job *job) noexcept nogil:
    """Sync the files of a job up to the first that fails, and return its errno."""
    cdef int at
    for at in range(job.count):
        while fdatasync(job.fds[at]) != 0:
            if errno != EINTR:
                return errno
    return 0


cdef void *serve(void *argument) noexcept nogil:
    """Run jobs until the pool closes and none is left."""
    cdef Shared *shared = <Shared *>argument
    cdef Job *job
    cdef bint is_first
    pthread_mutex_lock(&shared.lock)
    while True:
        job = take(&shared.waiting)
        if job == NULL:
            if shared.is_closing:
                break
            pthread_cond_wait(&shared.wanted, &shared.lock)
            continue
        pthread_mutex_unlock(&shared.lock)
        job.error = sync_all(job)
        pthread_mutex_lock(&shared.lock)
        is_first = shared.finished.first == NULL
        put(&shared.finished, job)
        if is_first:
            # The loop takes all that is finished, so one ring serves those that finish before it comes.
            pthread_mutex_unlock(&shared.lock)
            ring(shared)
            pthread_mutex_lock(&shared.lock)
    pthread_mutex_unlock(&shared.lock)
    return NULL


cdef class SyncThreads:
    """Threads that sync files and are started on demand. `done(None, error)` is called on the loop."""

    cdef object _loop
    cdef Shared *_shared
    cdef pthread_t _threads[THREADS_ROOM]
    cdef int _thread_count
    cdef int _unanswered
    cdef int _threads_max
    cdef int _process

    def __cinit__(self):
        self._shared = NULL

    def __init__(self, loop, int threads_max):
        assert 0 < threads_max <= THREADS_ROOM
        self._loop = loop
        self._threads_max = threads_max

    def run(self, list fds, done):
        """Sync the files, which stay open until `done` is called, and stop at the first that fails."""
        cdef Job *job = <Job *>calloc(1, sizeof(Job) + len(fds) * sizeof(int))
        cdef int at
        if job == NULL:
            raise MemoryError
        try:
            for at in range(len(fds)):
                job.fds[at] = fds[at]
            job.count = len(fds)
            if self._shared == NULL:
                self._open()
            if self._unanswered >= self._thread_count and self._thread_count < self._threads_max:
                self._start_thread()
        except BaseException:
            free(job)
            raise
        Py_INCREF(done)
        job.done = <PyObject *>done
        self._unanswered += 1
        pthread_mutex_lock(&self._shared.lock)
        put(&self._shared.waiting, job)
        pthread_mutex_unlock(&self._shared.lock)
        pthread_cond_signal(&self._shared.wanted)

    @property
    def is_idle(self):
        """Whether every job is done, and its owner knows."""
        return self._unanswered == 0

    cdef _open(self):
        cdef Shared *shared = <Shared *>calloc(1, sizeof(Shared))
        if shared == NULL:
            raise MemoryError
        shared.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        if shared.bell < 0:
            free(shared)
            raise OSError(errno, os.strerror(errno))
        pthread_mutex_init(&shared.lock, NULL)
        pthread_cond_init(&shared.wanted, NULL)
        self._shared = shared
        self._process = getpid()
        self._loop.add_reader(shared.bell, self._on_finished)

    cdef _start_thread(self):
        cdef sigset_t all_signals, before
        sigfillset(&all_signals)
        # A thread inherits the mask: signals are for the threads of the interpreter.
        pthread_sigmask(SIG_SETMASK, &all_signals, &before)
        cdef int error = pthread_create(&self._threads[self._thread_count], NULL, serve, self._shared)
        pthread_sigmask(SIG_SETMASK, &before, NULL)
        if error == 0:
            self._thread_count += 1
        elif self._thread_count == 0:
            raise OSError(error, os.strerror(error))

    def _on_finished(self):
        cdef uint64_t count
        cdef Job *job
        if self._shared == NULL:
            return
        read(self._shared.bell, &count, sizeof(count))
        while self._shared != NULL:
            pthread_mutex_lock(&self._shared.lock)
            job = take(&self._shared.finished)
            pthread_mutex_unlock(&self._shared.lock)
            if job == NULL:
                return
            error = OSError(job.error, os.strerror(job.error)) if job.error else None
            self._unanswered -= 1
            done = self._free(job)
            try:
                done(None, error)
            except BaseException:
                # The loop reports it. The jobs behind this one must not wait for the next that finishes.
                if self._shared != NULL:
                    ring(self._shared)
                raise

    cdef object _free(self, Job *job):
        """Free a job and return its callback."""
        done = <object>job.done
        Py_DECREF(done)
        free(job)
        return done

    def close(self):
        """Wait for the jobs and end the threads. Results that the loop has not handled are dropped."""
        if self._shared != NULL and getpid() == self._process and not self._loop.is_closed():
            self._loop.remove_reader(self._shared.bell)
        self._end()

    cdef _end(self):
        cdef Shared *shared = self._shared
        cdef Job *job
        cdef int at
        if shared == NULL:
            return
        self._shared = NULL
        # After a fork the child has none of the threads, the lock may be taken for ever, and the loop is the parent's.
        if getpid() == self._process:
            with nogil:
                pthread_mutex_lock(&shared.lock)
                shared.is_closing = True
                pthread_mutex_unlock(&shared.lock)
                pthread_cond_broadcast(&shared.wanted)
                for at in range(self._thread_count):
                    pthread_join(self._threads[at], NULL)
            job = take(&shared.finished)
            while job != NULL:
                self._free(job)
                job = take(&shared.finished)
            pthread_mutex_destroy(&shared.lock)
            pthread_cond_destroy(&shared.wanted)
            close(shared.bell)
            free(shared)
        self._thread_count = 0
        self._unanswered = 0

    def __dealloc__(self):
        self._end()
