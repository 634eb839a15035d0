// Uses a Host with fhir-kit-client, an ordinary FHIR client, and nothing of
// this project: the proofs are made here, from docs/records.md alone.
// HOST, RECORD and KEY (a private JWK) come from the environment.
import assert from 'node:assert/strict';
import { createHash, createPrivateKey, randomBytes, sign } from 'node:crypto';
import Client from 'fhir-kit-client';

const { HOST, RECORD } = process.env;
const jwk = JSON.parse(process.env.KEY);
const key = createPrivateKey({ key: jwk, format: 'jwk' });
const b64 = (data) => Buffer.from(data).toString('base64url');
const hash = (data) => createHash('sha256').update(data);
const publicJWK = { kty: 'OKP', crv: 'Ed25519', x: jwk.x };
const me = 'urn:ietf:params:oauth:jwk-thumbprint:sha-256:' +
  hash(`{"crv":"Ed25519","kty":"OKP","x":"${jwk.x}"}`).digest('base64url');

function jws(typ, claims) {
  const input = b64(JSON.stringify({ alg: 'EdDSA', typ, jwk: publicJWK })) + '.' + b64(JSON.stringify(claims));
  return input + '.' + sign(null, Buffer.from(input), key).toString('base64url');
}

let nonce, token;
const now = () => Math.floor(Date.now() / 1000);
const proof = (method, url) => jws('dpop+jwt', {
  jti: b64(randomBytes(16)), htm: method, htu: url.split('?')[0], iat: now(), nonce,
  ...(token && { ath: hash(token).digest('base64url') }),
});

// UUIDv7: the time in milliseconds, then chance.
function newID() {
  const raw = randomBytes(16);
  raw.writeUIntBE(Date.now(), 0, 6);
  raw[6] = 0x70 | (raw[6] & 0x0f);
  raw[8] = 0x80 | (raw[8] & 0x3f);
  const hex = raw.toString('hex');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}

async function getToken() {
  const endpoint = HOST + '/oauth/token';
  for (let i = 0; i < 2; i++) {
    const answer = await fetch(endpoint, {
      method: 'POST', headers: { DPoP: proof('POST', endpoint) },
      body: new URLSearchParams({
        grant_type: 'client_credentials', patient: RECORD, scope: 'patient/*.cruds',
        client_assertion_type: 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer',
        client_assertion: jws('JWT', { iss: me, sub: me, aud: endpoint, jti: b64(randomBytes(16)), iat: now(), exp: now() + 120 }),
      }),
    });
    nonce = answer.headers.get('DPoP-Nonce');
    const body = await answer.json();
    if (answer.ok) return body.access_token;
    assert.equal(body.error, 'use_dpop_nonce', JSON.stringify(body));
  }
}
token = await getToken();

const fhir = new Client({
  baseUrl: HOST + '/fhir',
  requestSigner: (url, options) => {
    options.headers.set('Authorization', 'DPoP ' + token);
    options.headers.set('DPoP', proof(options.method, url));
    if (options.method !== 'GET' && !url.includes('_search')) {
      options.headers.set('Idempotency-Key', `"${newID()}"`);
      options.headers.set('Content-Digest', 'sha-256=:' + hash(options.body ?? '').digest('base64') + ':');
      options.headers.set('Prefer', 'return=representation');
    }
  },
});

const capability = await fhir.capabilityStatement();
assert.equal(capability.resourceType, 'CapabilityStatement');
assert.equal(capability.rest[0].resource.length, 10);

const observation = (value) => ({
  resourceType: 'Observation', status: 'final', code: { coding: [{ system: 'http://loinc.org', code: '718-7' }] },
  category: [{ coding: [{ system: 'http://terminology.hl7.org/CodeSystem/observation-category', code: 'laboratory' }] }],
  subject: { reference: 'Patient/' + RECORD }, valueQuantity: { value, unit: 'g/dL' },
});
const made = [];
for (let i = 0; i < 5; i++) made.push(await fhir.create({ resourceType: 'Observation', body: observation(i) }));
assert.ok(made.every((r) => r.id && r.meta.versionId === '1'));
const { id } = made[0];

const patient = await fhir.read({ resourceType: 'Patient', id: RECORD });
assert.equal(patient.id, RECORD);
const updated = await fhir.update({ resourceType: 'Observation', id, body: { ...observation(7), id }, options: { headers: { 'If-Match': 'W/"1"' } } });
assert.equal(updated.meta.versionId, '2');
assert.equal((await fhir.vread({ resourceType: 'Observation', id, version: '1' })).valueQuantity.value, 0);
assert.equal((await fhir.read({ resourceType: 'Observation', id })).valueQuantity.value, 7);
const history = await fhir.history({ resourceType: 'Observation', id });
assert.equal(history.type, 'history');
assert.equal(history.entry.length, 2);

let page = await fhir.search({ resourceType: 'Observation', searchParams: { patient: RECORD, category: 'laboratory', _count: 2 } });
const found = [];
while (page) {
  assert.equal(page.type, 'searchset');
  found.push(...page.entry.map((e) => e.resource.id));
  page = await fhir.nextPage({ bundle: page });
}
assert.deepEqual(found.sort(), made.map((r) => r.id).sort());
const posted = await fhir.resourceSearch({ resourceType: 'Observation', searchParams: { code: 'http://loinc.org|718-7' }, options: { postSearch: true } });
assert.equal(posted.entry.length, 5);

const everything = await fhir.operation({ resourceType: 'Patient', id: RECORD, name: 'everything', method: 'GET' });
assert.equal(everything.entry.length, 6);

await fhir.delete({ resourceType: 'Observation', id, options: { headers: { 'If-Match': 'W/"2"' } } });
await assert.rejects(fhir.read({ resourceType: 'Observation', id }), (e) => e.response.status === 410 && e.response.data.resourceType === 'OperationOutcome');
await assert.rejects(fhir.create({ resourceType: 'Observation', body: { resourceType: 'Observation' } }),
  (e) => e.response.status === 422 && e.response.data.issue[0].details.coding[0].code === 'invalid_resource_code');
console.log('ok');
