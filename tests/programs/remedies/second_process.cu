// second-process with the CUDA runtime API: copies within the GPU, while a second process computes on it.
//
// nvcc -std=c++17 -o second_process second_process.cu -lcuda; ./second_process
//
// The second process is this program again. It ends with its standard input, with the process that started it, and
// after LIMIT_S. Timed: a copy of 1 MiB until it is complete, the longest of some copies.

#include "measured.h"

#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

constexpr unsigned long long KERNEL_NS = 20'000'000;
constexpr size_t BYTES = 1 << 20;
constexpr int COPIES = 4;
constexpr unsigned LIMIT_S = 15;
constexpr auto BEFORE_COPIES = std::chrono::milliseconds(2);

// The second process: kernels without a pause. It writes one byte once they run.
int compute()
{
    cudaStream_t stream = new_stream();
    cudaEvent_t ended[2];
    for (cudaEvent_t &event : ended)
        CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    pollfd parent{STDIN_FILENO, POLLIN, 0};
    for (unsigned number = 0; poll(&parent, 1, 0) == 0; number++) {
        busy<<<1, 1, 0, stream>>>(KERNEL_NS);
        CHECK(cudaGetLastError());
        CHECK(cudaEventRecord(ended[number % 2], stream));
        if (number)
            CHECK(cudaEventSynchronize(ended[(number - 1) % 2]));
        if (number == 1)
            REQUIRE(write(STDOUT_FILENO, "1", 1) == 1);
    }
    return 0;
}

class OtherProcess {
  public:
    OtherProcess()
    {
        int input[2], output[2];
        CHECK(pipe2(input, O_CLOEXEC));
        CHECK(pipe2(output, O_CLOEXEC));
        id_ = fork();
        REQUIRE(id_ >= 0);
        if (id_ == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            alarm(LIMIT_S);
            dup2(input[0], STDIN_FILENO);
            dup2(output[1], STDOUT_FILENO);
            execl("/proc/self/exe", "second_process", "compute", nullptr);
            _exit(1);
        }
        close(input[0]);
        close(output[1]);
        input_ = input[1];
        char byte;
        ssize_t count = read(output[0], &byte, 1);
        close(output[0]);
        REQUIRE(count == 1);
    }

    ~OtherProcess()
    {
        close(input_);
        waitpid(id_, nullptr, 0);
    }

    OtherProcess(const OtherProcess &) = delete;
    OtherProcess &operator=(const OtherProcess &) = delete;

  private:
    pid_t id_;
    int input_;
};

int main(int count, char **arguments)
{
    if (count == 2 && std::strcmp(arguments[1], "compute") == 0)
        return compute();
    void *source = device_memory(BYTES), *target = device_memory(BYTES);
    cudaStream_t stream = new_stream();
    unsigned char content = 0;
    size_t bytes = BYTES;
    unsigned long long length_ns = KERNEL_NS;

    auto longest_copy_ns = [&](auto begin_kernel, auto copy) {
        CHECK(cudaMemset(source, ++content, BYTES));
        CHECK(cudaDeviceSynchronize());
        begin_kernel();
        long long longest = 0;
        for (int number = 0; number < COPIES; number++) {
            long long begin = now_ns();
            copy();
            longest = std::max(longest, now_ns() - begin);
        }
        CHECK(cudaDeviceSynchronize());
        unsigned char last = 0;
        CHECK(cudaMemcpy(&last, static_cast<char *>(target) + BYTES - 1, 1, cudaMemcpyDeviceToHost));
        REQUIRE(last == content);
        return longest;
    };

    double before, copy_engine, one_process;
    {
        OtherProcess computes;
        auto no_kernel = [] {};
        before = median_us([&] {
            return longest_copy_ns(no_kernel, [&] {
                cudaMemcpyAsync(target, source, BYTES, cudaMemcpyDeviceToDevice, stream);
                CHECK(cudaStreamSynchronize(stream));
            });
        });
        // remedy copy-engine
        // Once, before the loop.
        void *relay;
        cudaMallocHost(&relay, bytes);
        // end
        copy_engine = median_us([&] {
            return longest_copy_ns(no_kernel, [&] {
                // remedy copy-engine
                // Through pinned memory, by the copy engines.
                cudaMemcpyAsync(relay, source, bytes,
                                cudaMemcpyDeviceToHost, stream);
                cudaMemcpyAsync(target, relay, bytes,
                                cudaMemcpyHostToDevice, stream);
                cudaStreamSynchronize(stream);
                // end
            });
        });
    }
    {
        // remedy one-process
        // Once: no second process, but a stream for each task.
        cudaStream_t kernels, copies;
        cudaStreamCreateWithFlags(&kernels, cudaStreamNonBlocking);
        cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking);
        // end
        auto begin_kernel = [&] {
            // remedy one-process
            // What the second process did.
            busy<<<1, 1, 0, kernels>>>(length_ns);
            // end
            std::this_thread::sleep_for(BEFORE_COPIES);
        };
        one_process = median_us([&] {
            return longest_copy_ns(begin_kernel, [&] {
                // remedy one-process
                // What this process does.
                cudaMemcpyAsync(target, source, bytes,
                                cudaMemcpyDeviceToDevice, copies);
                cudaStreamSynchronize(copies);
                // end
            });
        });
    }
    report("the longest copy", before, {{"copy-engine", copy_engine}, {"one-process", one_process}});
}
