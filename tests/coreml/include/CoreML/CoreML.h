/* The part of Apple's Core ML that the backend needs, proven by
 * tests/coreml/decl. Foundation is the system's: on macOS, and in a check
 * without a Mac, mac/Foundation/Foundation.h; on Linux GNUstep's.
 */
#ifndef ANED_COREML_H
#define ANED_COREML_H

#include <CoreFoundation/CoreFoundation.h>
#include <CoreVideo/CoreVideo.h>
#import <Foundation/Foundation.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLDevice;
@class MLComputePlan, MLComputePlanCost, MLComputePlanDeviceUsage;
@class MLFeatureValue, MLModel, MLModelAsset, MLModelConfiguration;
@class MLModelDescription, MLModelStructure, MLModelStructureProgramBlock;
@class MLModelStructureProgramOperation, MLMultiArray, MLOptimizationHints;
@class MLPredictionOptions, MLState;

/* Errors. */

CF_EXPORT NSString *const MLModelErrorDomain API_AVAILABLE(macos(10.13));
typedef NS_ENUM(NSInteger, MLModelError) {
    MLModelErrorGeneric = 0,
    MLModelErrorFeatureType = 1,
    MLModelErrorIO = 3,
    MLModelErrorCustomLayer = 4,
    MLModelErrorCustomModel = 5,
    MLModelErrorUpdate = 6,
    MLModelErrorParameters = 7,
    MLModelErrorModelDecryptionKeyFetch = 8,
    MLModelErrorModelDecryption = 9,
    MLModelErrorModelCollection = 10,
    MLModelErrorPredictionCancelled = 11,
};

/* Compute devices. */

@protocol MLComputeDeviceProtocol <NSObject>
@end

API_AVAILABLE(macos(14.0))
__attribute__((objc_subclassing_restricted))
@interface MLCPUComputeDevice : NSObject<MLComputeDeviceProtocol>
@end

API_AVAILABLE(macos(14.0))
__attribute__((objc_subclassing_restricted))
@interface MLGPUComputeDevice : NSObject<MLComputeDeviceProtocol>
@property(readonly, nonatomic, strong, nullable) id<MTLDevice> metalDevice;
@end

API_AVAILABLE(macos(14.0))
__attribute__((objc_subclassing_restricted))
@interface MLNeuralEngineComputeDevice : NSObject<MLComputeDeviceProtocol>
@property(readonly, nonatomic) NSInteger totalCoreCount;
@end

CF_EXPORT NSArray<id<MLComputeDeviceProtocol>> *MLAllComputeDevices(void)
    API_AVAILABLE(macos(14.0));

/* Arrays, features. */

typedef NS_ENUM(NSInteger, MLMultiArrayDataType) {
    MLMultiArrayDataTypeDouble = 0x10000 | 64,
    MLMultiArrayDataTypeFloat64 = 0x10000 | 64,
    MLMultiArrayDataTypeFloat32 = 0x10000 | 32,
    MLMultiArrayDataTypeFloat16 = 0x10000 | 16,
    MLMultiArrayDataTypeFloat = 0x10000 | 32,
    MLMultiArrayDataTypeInt32 = 0x20000 | 32,
};

API_AVAILABLE(macos(10.13))
@interface MLMultiArray : NSObject
@property(readonly, nonatomic) void *dataPointer API_DEPRECATED(
    "use getBytesWithHandler:", macos(10.13, API_TO_BE_DEPRECATED));
@property(readonly, nonatomic) MLMultiArrayDataType dataType;
@property(readonly, nonatomic) NSArray<NSNumber *> *shape;
@property(readonly, nonatomic) NSArray<NSNumber *> *strides;
@property(readonly, nonatomic) NSInteger count;
@property(readonly, nonatomic, nullable)
    CVPixelBufferRef pixelBuffer API_AVAILABLE(macos(12.0));
- (nullable instancetype)initWithShape:(NSArray<NSNumber *> *)shape
                              dataType:(MLMultiArrayDataType)dataType
                                 error:(NSError *_Nullable *_Nullable)error;
- (instancetype)initWithShape:(NSArray<NSNumber *> *)shape
                     dataType:(MLMultiArrayDataType)dataType
                      strides:(NSArray<NSNumber *> *)strides
    API_AVAILABLE(macos(15.0));
- (nullable instancetype)
    initWithDataPointer:(void *)dataPointer
                  shape:(NSArray<NSNumber *> *)shape
               dataType:(MLMultiArrayDataType)dataType
                strides:(NSArray<NSNumber *> *)strides
            deallocator:(void (^_Nullable)(void *bytes))deallocator
                  error:(NSError *_Nullable *_Nullable)error;
- (instancetype)initWithPixelBuffer:(CVPixelBufferRef)pixelBuffer
                              shape:(NSArray<NSNumber *> *)shape
    API_AVAILABLE(macos(12.0));
- (void)getBytesWithHandler:
    (void(CF_NOESCAPE ^)(const void *bytes, NSInteger size))handler
    API_AVAILABLE(macos(12.3));
- (void)getMutableBytesWithHandler:
    (void(CF_NOESCAPE ^)(void *mutableBytes, NSInteger size,
                         NSArray<NSNumber *> *strides))handler
    API_AVAILABLE(macos(12.3));
- (NSNumber *)objectAtIndexedSubscript:(NSInteger)idx;
- (void)transferToMultiArray:(MLMultiArray *)destinationMultiArray
    API_AVAILABLE(macos(15.0));
@end

typedef NS_ENUM(NSInteger, MLFeatureType) {
    MLFeatureTypeInvalid = 0,
    MLFeatureTypeInt64 = 1,
    MLFeatureTypeDouble = 2,
    MLFeatureTypeString = 3,
    MLFeatureTypeImage = 4,
    MLFeatureTypeMultiArray = 5,
    MLFeatureTypeDictionary = 6,
    MLFeatureTypeSequence = 7,
    MLFeatureTypeState = 8,
};

API_AVAILABLE(macos(10.13))
@interface MLFeatureValue : NSObject <NSCopying>
@property(readonly, nonatomic) MLFeatureType type;
@property(readonly, nonatomic, getter=isUndefined) BOOL undefined;
@property(readonly, nonatomic, nullable) MLMultiArray *multiArrayValue;
@property(readonly, nonatomic, nullable) CVPixelBufferRef imageBufferValue;
+ (instancetype)featureValueWithMultiArray:(MLMultiArray *)value;
@end

API_AVAILABLE(macos(10.13))
@protocol MLFeatureProvider
@property(readonly, nonatomic) NSSet<NSString *> *featureNames;
- (nullable MLFeatureValue *)featureValueForName:(NSString *)featureName;
@end

API_AVAILABLE(macos(10.13))
@interface MLDictionaryFeatureProvider : NSObject <MLFeatureProvider>
@property(readonly, nonatomic)
    NSDictionary<NSString *, MLFeatureValue *> *dictionary;
- (nullable instancetype)
    initWithDictionary:(NSDictionary<NSString *, id> *)dictionary
                 error:(NSError *_Nullable *_Nullable)error;
- (nullable MLFeatureValue *)objectForKeyedSubscript:(NSString *)featureName;
@end

/* What a model declares. */

typedef NS_ENUM(NSInteger, MLMultiArrayShapeConstraintType) {
    MLMultiArrayShapeConstraintTypeUnspecified = 1,
    MLMultiArrayShapeConstraintTypeEnumerated = 2,
    MLMultiArrayShapeConstraintTypeRange = 3,
};

API_AVAILABLE(macos(10.14))
@interface MLMultiArrayShapeConstraint : NSObject
@property(readonly, nonatomic) MLMultiArrayShapeConstraintType type;
@property(readonly, nonatomic) NSArray<NSValue *> *sizeRangeForDimension;
@property(readonly, nonatomic) NSArray<NSArray<NSNumber *> *> *enumeratedShapes;
@end

API_AVAILABLE(macos(10.13))
@interface MLMultiArrayConstraint : NSObject
@property(readonly, nonatomic) NSArray<NSNumber *> *shape;
@property(readonly, nonatomic) MLMultiArrayDataType dataType;
@property(readonly, nonatomic)
    MLMultiArrayShapeConstraint *shapeConstraint API_AVAILABLE(macos(10.14));
@end

API_AVAILABLE(macos(15.0))
@interface MLStateConstraint : NSObject
@property(readonly, nonatomic) NSArray<NSNumber *> *bufferShape;
@property(readonly, nonatomic) MLMultiArrayDataType dataType;
@end

API_AVAILABLE(macos(10.13))
@interface MLFeatureDescription : NSObject <NSCopying>
@property(readonly, nonatomic, copy) NSString *name;
@property(readonly, nonatomic) MLFeatureType type;
@property(readonly, nonatomic, getter=isOptional) BOOL optional;
@property(readonly, nonatomic, nullable)
    MLMultiArrayConstraint *multiArrayConstraint;
@property(readonly, nonatomic, nullable)
    MLStateConstraint *stateConstraint API_AVAILABLE(macos(15.0));
- (BOOL)isAllowedValue:(MLFeatureValue *)value;
@end

API_AVAILABLE(macos(10.13))
@interface MLModelDescription : NSObject
@property(readonly, nonatomic)
    NSDictionary<NSString *, MLFeatureDescription *> *inputDescriptionsByName;
@property(readonly, nonatomic)
    NSDictionary<NSString *, MLFeatureDescription *> *outputDescriptionsByName;
@property(readonly, nonatomic)
    NSDictionary<NSString *, MLFeatureDescription *> *stateDescriptionsByName
        API_AVAILABLE(macos(15.0));
@end

/* How a model is loaded, and asked. */

typedef NS_ENUM(NSInteger, MLReshapeFrequencyHint) {
    MLReshapeFrequencyHintFrequent = 0,
    MLReshapeFrequencyHintInfrequent = 1,
};

typedef NS_ENUM(NSInteger, MLSpecializationStrategy) {
    MLSpecializationStrategyDefault = 0,
    MLSpecializationStrategyFastPrediction = 1,
};

API_AVAILABLE(macos(14.4))
@interface MLOptimizationHints : NSObject <NSCopying>
@property(readwrite, nonatomic) MLReshapeFrequencyHint reshapeFrequency;
@property(readwrite, nonatomic)
    MLSpecializationStrategy specializationStrategy API_AVAILABLE(macos(15.0));
@end

typedef NS_ENUM(NSInteger, MLComputeUnits) {
    MLComputeUnitsCPUOnly = 0,
    MLComputeUnitsCPUAndGPU = 1,
    MLComputeUnitsAll = 2,
    MLComputeUnitsCPUAndNeuralEngine = 3,
};

API_AVAILABLE(macos(10.14))
@interface MLModelConfiguration : NSObject <NSCopying>
@property(readwrite, copy, nullable)
    NSString *modelDisplayName API_AVAILABLE(macos(13.0));
@property(readwrite) MLComputeUnits computeUnits;
@property(readwrite, nonatomic, copy)
    MLOptimizationHints *optimizationHints API_AVAILABLE(macos(14.4));
@property(readwrite)
    BOOL allowLowPrecisionAccumulationOnGPU API_AVAILABLE(macos(10.15));
@property(readwrite, nonatomic, copy, nullable)
    NSString *functionName API_AVAILABLE(macos(15.0));
@end

API_AVAILABLE(macos(10.13))
@interface MLPredictionOptions : NSObject
@property(readwrite, nonatomic, copy)
    NSDictionary<NSString *, id> *outputBackings API_AVAILABLE(macos(11.0));
@end

/* +new and -init exist but are not for callers: -[MLModel newState]. */
API_AVAILABLE(macos(15.0))
__attribute__((objc_subclassing_restricted))
@interface MLState : NSObject
- (void)getMultiArrayForStateNamed:(NSString *)stateName
                           handler:(void(CF_NOESCAPE ^)(MLMultiArray *buffer))
                                       handler;
@end

API_AVAILABLE(macos(10.13))
@interface MLModel : NSObject
@property(readonly, nonatomic) MLModelDescription *modelDescription;
@property(readonly, nonatomic)
    MLModelConfiguration *configuration API_AVAILABLE(macos(10.14));
@property(class, readonly, nonatomic, copy)
    NSArray<id<MLComputeDeviceProtocol>> *availableComputeDevices API_AVAILABLE(
        macos(14.0));
+ (nullable NSURL *)compileModelAtURL:(NSURL *)modelURL
                                error:(NSError *_Nullable *_Nullable)error
    API_DEPRECATED("use compileModelAtURL:completionHandler:",
                   macos(10.13, API_TO_BE_DEPRECATED));
+ (void)compileModelAtURL:(NSURL *)modelURL
        completionHandler:(void (^)(NSURL *_Nullable compiledModelURL,
                                    NSError *_Nullable error))handler
    API_AVAILABLE(macos(13.0));
+ (nullable instancetype)
    modelWithContentsOfURL:(NSURL *)url
             configuration:(MLModelConfiguration *)configuration
                     error:(NSError *_Nullable *_Nullable)error
    API_AVAILABLE(macos(10.14));
+ (void)loadContentsOfURL:(NSURL *)url
            configuration:(MLModelConfiguration *)configuration
        completionHandler:(void (^)(MLModel *_Nullable model,
                                    NSError *_Nullable error))handler
    API_AVAILABLE(macos(11.0));
- (nullable id<MLFeatureProvider>)
    predictionFromFeatures:(id<MLFeatureProvider>)input
                   options:(MLPredictionOptions *)options
                     error:(NSError *_Nullable *_Nullable)error;
- (MLState *)newState API_AVAILABLE(macos(15.0));
- (nullable id<MLFeatureProvider>)
    predictionFromFeatures:(id<MLFeatureProvider>)inputFeatures
                usingState:(MLState *)state
                     error:(NSError *_Nullable *_Nullable)error
    API_AVAILABLE(macos(15.0));
- (nullable id<MLFeatureProvider>)
    predictionFromFeatures:(id<MLFeatureProvider>)inputFeatures
                usingState:(MLState *)state
                   options:(MLPredictionOptions *)options
                     error:(NSError *_Nullable *_Nullable)error
    API_AVAILABLE(macos(15.0));
@end

API_AVAILABLE(macos(13.0))
@interface MLModelAsset : NSObject
+ (nullable instancetype)modelAssetWithURL:(NSURL *)compiledModelURL
                                     error:(NSError *_Nullable *_Nullable)error
    API_AVAILABLE(macos(15.0));
- (void)functionNamesWithCompletionHandler:
    (void (^)(NSArray<NSString *> *_Nullable functionNames,
              NSError *_Nullable error))handler API_AVAILABLE(macos(15.0));
@end

/* The compute plan and the program that it speaks of. */

API_AVAILABLE(macos(14.4))
__attribute__((objc_subclassing_restricted))
@interface MLModelStructureProgramValueType : NSObject
@end

API_AVAILABLE(macos(14.4))
__attribute__((objc_subclassing_restricted))
@interface MLModelStructureProgramNamedValueType : NSObject
@property(readonly, nonatomic, copy) NSString *name;
@property(readonly, nonatomic, strong) MLModelStructureProgramValueType *type;
@end

API_AVAILABLE(macos(14.4))
__attribute__((objc_subclassing_restricted))
@interface MLModelStructureProgramValue : NSObject
@end

API_AVAILABLE(macos(14.4))
__attribute__((objc_subclassing_restricted))
@interface MLModelStructureProgramBinding : NSObject
@property(readonly, nonatomic, copy, nullable) NSString *name;
@property(readonly, nonatomic, copy, nullable)
    MLModelStructureProgramValue *value;
@end

API_AVAILABLE(macos(14.4))
__attribute__((objc_subclassing_restricted))
@interface MLModelStructureProgramArgument : NSObject
@property(readonly, nonatomic, copy)
    NSArray<MLModelStructureProgramBinding *> *bindings;
@end

API_AVAILABLE(macos(14.4))
__attribute__((objc_subclassing_restricted))
@interface MLModelStructureProgramOperation : NSObject
@property(readonly, nonatomic, copy) NSString *operatorName;
@property(readonly, nonatomic, copy)
    NSDictionary<NSString *, MLModelStructureProgramArgument *> *inputs;
@property(readonly, nonatomic, copy)
    NSArray<MLModelStructureProgramNamedValueType *> *outputs;
@property(readonly, nonatomic, copy)
    NSArray<MLModelStructureProgramBlock *> *blocks;
@end

API_AVAILABLE(macos(14.4))
__attribute__((objc_subclassing_restricted))
@interface MLModelStructureProgramBlock : NSObject
@property(readonly, nonatomic, copy)
    NSArray<MLModelStructureProgramNamedValueType *> *inputs;
@property(readonly, nonatomic, copy) NSArray<NSString *> *outputNames;
@property(readonly, nonatomic, copy)
    NSArray<MLModelStructureProgramOperation *> *operations;
@end

API_AVAILABLE(macos(14.4))
__attribute__((objc_subclassing_restricted))
@interface MLModelStructureProgramFunction : NSObject
@property(readonly, nonatomic, copy)
    NSArray<MLModelStructureProgramNamedValueType *> *inputs;
@property(readonly, nonatomic, strong) MLModelStructureProgramBlock *block;
@end

API_AVAILABLE(macos(14.4))
__attribute__((objc_subclassing_restricted))
@interface MLModelStructureProgram : NSObject
@property(readonly, nonatomic, copy)
    NSDictionary<NSString *, MLModelStructureProgramFunction *> *functions;
@end

API_AVAILABLE(macos(14.4))
@interface MLModelStructure : NSObject
@property(readonly, nonatomic, strong, nullable)
    MLModelStructureProgram *program;
+ (void)loadContentsOfURL:(NSURL *)url
        completionHandler:(void (^)(MLModelStructure *_Nullable modelStructure,
                                    NSError *_Nullable error))handler;
@end

API_AVAILABLE(macos(14.4))
__attribute__((objc_subclassing_restricted))
@interface MLComputePlanCost : NSObject
@property(readonly, nonatomic) double weight;
@end

API_AVAILABLE(macos(14.4))
__attribute__((objc_subclassing_restricted))
@interface MLComputePlanDeviceUsage : NSObject
@property(readonly, nonatomic, copy)
    NSArray<id<MLComputeDeviceProtocol>> *supportedComputeDevices;
@property(readonly, nonatomic, strong) id<MLComputeDeviceProtocol>
    preferredComputeDevice;
@end

API_AVAILABLE(macos(14.4))
__attribute__((objc_subclassing_restricted))
@interface MLComputePlan : NSObject
@property(readonly, nonatomic, strong) MLModelStructure *modelStructure;
+ (void)loadContentsOfURL:(NSURL *)url
            configuration:(MLModelConfiguration *)configuration
        completionHandler:(void (^)(MLComputePlan *_Nullable computePlan,
                                    NSError *_Nullable error))handler;
- (nullable MLComputePlanDeviceUsage *)computeDeviceUsageForMLProgramOperation:
    (MLModelStructureProgramOperation *)operation;
- (nullable MLComputePlanCost *)estimatedCostOfMLProgramOperation:
    (MLModelStructureProgramOperation *)operation;
@end

NS_ASSUME_NONNULL_END

#endif
