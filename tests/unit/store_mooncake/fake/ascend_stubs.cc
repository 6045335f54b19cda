// Stands for the libraries of Ascend devices that the C library of Mooncake's package asks for. No
// device is ever there, so each function answers an error.

#define STUB(name) \
  int name() {     \
    return 100000; \
  }

extern "C" {
STUB(aclGetRecentErrMsg)
STUB(aclrtCreateStreamWithConfig)
STUB(aclrtDestroyStream)
STUB(aclrtFreeHost)
STUB(aclrtFreePhysical)
STUB(aclrtGetCurrentContext)
STUB(aclrtGetDevice)
STUB(aclrtGetDeviceCount)
STUB(aclrtGetLogicDevIdByUserDevId)
STUB(aclrtGetPhyDevIdByLogicDevId)
STUB(aclrtGetSocName)
STUB(aclrtHostRegister)
STUB(aclrtHostUnregister)
STUB(aclrtIpcMemClose)
STUB(aclrtIpcMemGetExportKey)
STUB(aclrtIpcMemImportByKey)
STUB(aclrtMallocHost)
STUB(aclrtMallocPhysical)
STUB(aclrtMapMem)
STUB(aclrtMemExportToShareableHandleV2)
STUB(aclrtMemGetAllocationGranularity)
STUB(aclrtMemImportFromShareableHandleV2)
STUB(aclrtMemSetAccess)
STUB(aclrtMemcpy)
STUB(aclrtMemcpyAsync)
STUB(aclrtMemcpyBatch)
STUB(aclrtPointerGetAttributes)
STUB(aclrtReleaseMemAddress)
STUB(aclrtReserveMemAddress)
STUB(aclrtReserveMemAddressNoUCMemory)
STUB(aclrtSetCurrentContext)
STUB(aclrtSetDevice)
STUB(aclrtStreamAbort)
STUB(aclrtSynchronizeStreamWithTimeout)
STUB(aclrtUnmapMem)
}
