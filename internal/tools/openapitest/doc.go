// Package openapitest validates the OpenAPI description of the console, and responses of the console against it, with
// kin-openapi.
package openapitest
