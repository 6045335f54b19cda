#include "src/server/openapi.h"

namespace embercache {

const std::string_view kOpenApi = R"json({
  "openapi": "3.1.0",
  "info": {
    "title": "EmberCache",
    "version": "1",
    "description": "Embeddings of images, computed once and served from a cache. docs/operations.md says more.",
    "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}
  },
  "servers": [{"url": "/"}],
  "paths": {
    "/v1/encode": {
      "post": {
        "operationId": "encode",
        "summary": "Embeddings of images",
        "parameters": [
          {"$ref": "#/components/parameters/RequestId"},
          {"$ref": "#/components/parameters/RequestTimeout"}
        ],
        "requestBody": {
          "required": true,
          "content": {
            "application/json": {
              "schema": {"$ref": "#/components/schemas/EncodeRequest"},
              "examples": {
                "pixel": {
                  "summary": "A picture of one pixel",
                  "value": {"items": [{"type": "image", "data": "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP438AAAAQBAYDFKhhdAAAAAElFTkSuQmCC"}]}
                }
              }
            },
            "multipart/form-data": {"schema": {"$ref": "#/components/schemas/EncodeForm"}}
          }
        },
        "responses": {
          "200": {
            "description": "At least one item succeeded",
            "headers": {"X-Request-Id": {"$ref": "#/components/headers/RequestId"}},
            "content": {
              "application/vnd.safetensors": {"schema": {"$ref": "#/components/schemas/Safetensors"}},
              "application/json": {"schema": {"$ref": "#/components/schemas/Answer"}}
            }
          },
          "400": {"$ref": "#/components/responses/Failed"},
          "403": {"$ref": "#/components/responses/Failed"},
          "404": {"$ref": "#/components/responses/Failed"},
          "413": {"$ref": "#/components/responses/Failed"},
          "415": {"$ref": "#/components/responses/Failed"},
          "431": {"$ref": "#/components/responses/Failed"},
          "500": {"$ref": "#/components/responses/Failed"},
          "501": {"$ref": "#/components/responses/Failed"},
          "503": {"$ref": "#/components/responses/Overloaded"},
          "504": {"$ref": "#/components/responses/Failed"}
        }
      }
    },
    "/v1/cache/{key}": {
      "parameters": [
        {
          "name": "key", "in": "path", "required": true,
          "schema": {"$ref": "#/components/schemas/Key"}
        },
        {"$ref": "#/components/parameters/RequestId"},
        {"$ref": "#/components/parameters/RequestTimeout"}
      ],
      "get": {
        "operationId": "getEmbedding",
        "summary": "One embedding by its key: the host cache's, else the store's",
        "responses": {
          "200": {
            "description": "The embedding, as the tensor item_0",
            "content": {
              "application/vnd.safetensors": {"schema": {"$ref": "#/components/schemas/Safetensors"}},
              "application/json": {"schema": {"$ref": "#/components/schemas/Answer"}}
            }
          },
          "400": {"$ref": "#/components/responses/Failed"},
          "403": {"$ref": "#/components/responses/Failed"},
          "404": {"$ref": "#/components/responses/Failed"},
          "503": {"$ref": "#/components/responses/Overloaded"}
        }
      },
      "head": {
        "operationId": "headEmbedding",
        "summary": "The headers of GET",
        "responses": {
          "200": {"description": "It is there"},
          "400": {"description": "The key is malformed"},
          "403": {"description": "Foreign Host or Origin"},
          "404": {"description": "It is not there"},
          "503": {"description": "The store does not answer, or there is no room now"}
        }
      },
      "delete": {
        "operationId": "deleteEmbedding",
        "summary": "Takes one embedding out of the host cache and the store",
        "responses": {
          "204": {"description": "It is gone"},
          "400": {"$ref": "#/components/responses/Failed"},
          "403": {"$ref": "#/components/responses/Failed"},
          "404": {"$ref": "#/components/responses/Failed"},
          "503": {"$ref": "#/components/responses/Overloaded"},
          "504": {"$ref": "#/components/responses/Failed"}
        }
      }
    },
    "/v1/stats": {
      "get": {
        "operationId": "stats",
        "summary": "What is in force, what is loaded, how full it is",
        "responses": {
          "200": {"description": "Statistics", "content": {"application/json": {"schema": {"type": "object"}}}},
          "403": {"$ref": "#/components/responses/Failed"},
          "503": {"$ref": "#/components/responses/Overloaded"}
        }
      }
    },
    "/health": {
      "get": {
        "operationId": "health",
        "summary": "The process is alive",
        "responses": {
          "200": {"description": "Alive", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/State"}}}},
          "403": {"$ref": "#/components/responses/Failed"}
        }
      }
    },
    "/ready": {
      "get": {
        "operationId": "ready",
        "summary": "Models are loaded; how the store is",
        "responses": {
          "200": {"description": "Ready", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/State"}}}},
          "403": {"$ref": "#/components/responses/Failed"},
          "503": {"$ref": "#/components/responses/Overloaded"}
        }
      }
    },
    "/metrics": {
      "get": {
        "operationId": "metrics",
        "summary": "Prometheus metrics",
        "responses": {
          "200": {"description": "Metrics", "content": {"text/plain": {"schema": {"type": "string"}}}},
          "403": {"$ref": "#/components/responses/Failed"},
          "503": {"$ref": "#/components/responses/Overloaded"}
        }
      }
    },
    "/": {
      "get": {
        "operationId": "statusPage",
        "summary": "A page for a person",
        "responses": {
          "200": {"description": "HTML", "content": {"text/html": {"schema": {"type": "string"}}}},
          "403": {"$ref": "#/components/responses/Failed"}
        }
      }
    },
    "/openapi.json": {
      "get": {
        "operationId": "openapi",
        "summary": "This document",
        "responses": {
          "200": {"description": "OpenAPI 3.1", "content": {"application/json": {"schema": {"type": "object"}}}},
          "403": {"$ref": "#/components/responses/Failed"}
        }
      }
    }
  },
  "components": {
    "parameters": {
      "RequestId": {
        "name": "X-Request-Id", "in": "header",
        "description": "Comes back in the answer and in log lines; empty is none",
        "schema": {"type": "string", "maxLength": 128, "pattern": "^[!-~]*$"}
      },
      "RequestTimeout": {
        "name": "X-Request-Timeout-Ms", "in": "header",
        "description": "The longest that this request takes; the server's own limit stands",
        "schema": {"type": "integer", "minimum": 1}
      }
    },
    "headers": {
      "RequestId": {"schema": {"type": "string"}},
      "RetryAfter": {"description": "Seconds", "schema": {"type": "integer", "minimum": 1}}
    },
    "responses": {
      "Failed": {
        "description": "Refused or failed; the message says why",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Failure"}}}
      },
      "Overloaded": {
        "description": "Not now: over capacity, starting, or stopping",
        "headers": {"Retry-After": {"$ref": "#/components/headers/RetryAfter"}},
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Failure"}}}
      }
    },
    "schemas": {
      "Key": {"type": "string", "pattern": "^[0-9a-fA-F]{64}$"},
      "State": {
        "type": "object", "required": ["status"],
        "properties": {
          "status": {"type": "string"},
          "store": {"enum": ["up", "starting", "down", "off"]}
        }
      },
      "Item": {
        "type": "object", "required": ["type"], "additionalProperties": false,
        "oneOf": [{"required": ["data"]}, {"required": ["url"]}, {"required": ["path"]}],
        "properties": {
          "type": {"const": "image"},
          "data": {
            "type": "string", "contentEncoding": "base64", "minLength": 2,
            "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}(==)?|[A-Za-z0-9+/]{3}=?)?$"
          },
          "url": {"type": "string", "pattern": "^data:[^,]*;base64,[A-Za-z0-9+/]+={0,2}$"},
          "path": {"type": "string", "description": "A file inside the server's media root"},
          "sha256": {"type": "string", "pattern": "^[0-9a-fA-F]{64}$"},
          "options": {"$ref": "#/components/schemas/Options"}
        }
      },
      "Options": {
        "type": "object", "additionalProperties": false,
        "properties": {
          "apply_exif_orientation": {"type": "boolean"},
          "background": {"type": "string", "pattern": "^(#[0-9a-fA-F]{6}|none)$"},
          "sixteen_bit": {"enum": ["scale", "clip"]}
        }
      },
      "EncodeRequest": {
        "type": "object", "required": ["items"], "additionalProperties": false,
        "properties": {
          "request_id": {"type": "string", "maxLength": 128, "pattern": "^[!-~]*$"},
          "model": {"type": "string", "description": "May be left out where one model is served"},
          "items": {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/Item"}}
        }
      },
      "EncodeForm": {
        "type": "object",
        "description": "Every part with a file name is an item, whatever its name",
        "properties": {
          "request_id": {"type": "string"},
          "model": {"type": "string"},
          "options": {"type": "string", "contentMediaType": "application/json"},
          "image": {"type": "array", "items": {"type": "string", "contentMediaType": "application/octet-stream"}}
        }
      },
      "Safetensors": {"type": "string", "contentMediaType": "application/vnd.safetensors"},
      "Error": {
        "type": "object", "required": ["code", "message"],
        "properties": {
          "code": {"enum": ["INVALID", "NOT_FOUND", "ALREADY_EXISTS", "RESOURCE_EXHAUSTED", "UNAVAILABLE",
            "DEADLINE_EXCEEDED", "CANCELLED", "CORRUPTION", "UNIMPLEMENTED", "INTERNAL"]},
          "message": {"type": "string"}
        }
      },
      "AnswerItem": {
        "type": "object",
        "properties": {
          "key": {"$ref": "#/components/schemas/Key"},
          "source": {"enum": ["computed", "local", "global", "joined"]},
          "shape": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "integer"}], "minItems": 2, "maxItems": 2},
          "dtype": {"type": "string"},
          "bytes": {"type": "integer"},
          "metadata": {"type": "object"},
          "ms": {
            "type": "object",
            "properties": {
              "lookup": {"type": "number"}, "fetch": {"type": "number"}, "preprocess": {"type": "number"},
              "encode": {"type": "number"}, "total": {"type": "number"}
            }
          },
          "error": {"$ref": "#/components/schemas/Error"}
        }
      },
      "Answer": {
        "type": "object", "required": ["request_id", "items"],
        "properties": {
          "request_id": {"type": "string"},
          "items": {"type": "array", "items": {"$ref": "#/components/schemas/AnswerItem"}}
        }
      },
      "Failure": {
        "type": "object", "required": ["error"],
        "properties": {
          "error": {"$ref": "#/components/schemas/Error"},
          "request_id": {"type": "string"},
          "items": {"type": "array", "items": {"$ref": "#/components/schemas/AnswerItem"}}
        }
      }
    }
  }
}
)json";

}  // namespace embercache
