// What the example uses of Node.js, so that it needs no package of types.
declare const process: { env: Record<string, string | undefined>; argv: string[] };
