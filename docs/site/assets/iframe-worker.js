// Material's search runs in a Worker, which browsers refuse to pages of file://. There an invisible
// frame does its work. Contains nothing for pages of a server.
(() => {
  if (location.protocol !== "file:") return;
  // Scripts that a worker imports run in the order of their names.
  const load = (frame, url) => new Promise((resolve, reject) => {
    const script = frame.document.createElement("script");
    script.src = url;
    script.onload = resolve;
    script.onerror = () => reject(new Error(`cannot load ${url}`));
    frame.document.head.append(script);
  });
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.frame = frame.contentWindow;
      const base = new URL(url, location);
      const inside = this.frame;
      inside.importScripts = (...urls) => urls.reduce((done, next) => done.then(() => load(inside, new URL(next, base).href)), Promise.resolve());
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      this.ready = load(inside, base.href);
    }
    postMessage(data) {
      this.ready.then(() => this.frame.dispatchEvent(new this.frame.MessageEvent("message", { data })));
    }
    terminate() { this.frame.frameElement.remove(); }
  };
})();
