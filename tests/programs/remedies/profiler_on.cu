// profiler-on with the CUDA runtime API: launches before a profile with CUPTI, after it, and after CUPTI is detached.
//
// nvcc -std=c++17 -o profiler_on profiler_on.cu -lcupti -lcuda; ./profiler_on
//
// Timed: the call of a launch, one after the other. The profile itself is not part of it.

#include "measured.h"

#include <cupti.h>

#include <atomic>

constexpr int LAUNCHES = 4000, IN_A_PROFILE = 100;
constexpr size_t BUFFER_BYTES = 1 << 16, ALIGNMENT = 8;

__global__ void empty() {}

long records = 0;

void CUPTIAPI requested(uint8_t **buffer, size_t *size, size_t *most)
{
    *buffer = static_cast<uint8_t *>(std::aligned_alloc(ALIGNMENT, BUFFER_BYTES));
    *size = BUFFER_BYTES;
    *most = 0;
}

void CUPTIAPI completed(CUcontext, uint32_t, uint8_t *buffer, size_t, size_t valid)
{
    for (CUpti_Activity *record = nullptr; cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS;)
        records++;
    std::free(buffer);
}

// remedy detached
std::atomic<bool> detaching{false};

// CUPTI is detached where a call of the driver returns.
void CUPTIAPI detach(
    void *, CUpti_CallbackDomain, CUpti_CallbackId,
    const void *data
) {
    auto call = static_cast<const CUpti_CallbackData *>(data);
    if (call->callbackSite == CUPTI_API_EXIT
        && detaching.exchange(false))
        cuptiFinalize();
}
// end

int main()
{
    cudaStream_t stream = new_stream();

    // Median of the calls in us.
    auto launch_us = [&](int launches) {
        return median_us(
            [&] {
                long long begin = now_ns();
                empty<<<1, 1, 0, stream>>>();
                long long took = now_ns() - begin;
                CHECK(cudaStreamSynchronize(stream));
                return took;
            },
            launches
        );
    };

    auto profile = [&] {
        records = 0;
        CHECK(cuptiActivityRegisterCallbacks(requested, completed));
        CHECK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
        launch_us(IN_A_PROFILE);
        CHECK(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
        CHECK(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
        REQUIRE(records > IN_A_PROFILE);
    };

    auto end_profiles = [&] {
        // remedy detached
        // After the last profile, while no graph launch is in flight.
        CUpti_SubscriberHandle subscriber;
        cuptiSubscribe(&subscriber, detach, nullptr);
        cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API);
        detaching = true;
        cudaDeviceSynchronize();
        // end
        REQUIRE(!detaching);
    };

    std::vector<double> without, before, after;
    for (int round = 0; round <= ROUNDS; round++) {
        double never = launch_us(LAUNCHES);
        profile();
        double ended = launch_us(LAUNCHES);
        end_profiles();
        double detached = launch_us(LAUNCHES);
        if (!round)
            continue;
        without.push_back(never);
        before.push_back(ended);
        after.push_back(detached);
    }
    auto median = [](std::vector<double> &found) {
        std::nth_element(found.begin(), found.begin() + ROUNDS / 2, found.end());
        return found[ROUNDS / 2];
    };
    report("the call of a launch after a profile", median(before), {{"detached", median(after)}}, median(without));
}
