/* device.m - what this machine has for Core ML. */
#import "engine/coreml/coreml.h"

unsigned coreml_neural_cores(void)
{
    NSInteger n = 0;
    @autoreleasepool {
        for (id<MLComputeDeviceProtocol> d in MLAllComputeDevices()) {
            if ([(id)d isKindOfClass:[MLNeuralEngineComputeDevice class]]) {
                n += [(MLNeuralEngineComputeDevice *)d totalCoreCount];
            }
        }
    }
    return n > 0 ? (unsigned)n : 0;
}
